"""RecTools' HSTU or SASRec on MovieLens-1M, in an environment of its own (pip install 'rectools[torch]'):

    python bench/baselines/rectools_ml1m.py chrono.csv --model hstu --epochs 5 --threads 2

The same split, width, layers, length and batch as configs/ml1m-hstu.toml: the last event of each user is kept back and ranked over all items
with seen ones left out. The loss is RecTools' own, over all items, or with --loss sampled_softmax over as many negatives as that file has. Only
the order of events is used. Prints the seconds of each epoch and, after every --every of them and the last, HR@10 and NDCG@10. PyTorch for
the CPU alone is what tools/cpu_torch installs; --device cuda trains and ranks on a GPU.
"""
import argparse
import time
import warnings

import numpy as np
import pandas as pd
import pytorch_lightning as lightning
import torch
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import HSTUModel, SASRecModel

warnings.filterwarnings("ignore")


def wait():
    """Until the GPU, where there is one, has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Clock(lightning.Callback):
    """Says how long each epoch took and what it led to, and ends the run once its time is over."""

    def __init__(self, minutes, every, rank):
        self.end = time.perf_counter() + 60 * minutes
        self.every, self.rank = every, rank

    def on_train_epoch_start(self, *_):
        wait()
        self.begin = time.perf_counter(), time.process_time()

    def on_train_epoch_end(self, trainer, module):
        wait()
        seconds, processor = time.perf_counter() - self.begin[0], time.process_time() - self.begin[1]
        print(f"epoch {trainer.current_epoch + 1}: {seconds:.1f} s, {processor:.1f} s of processor time", flush=True)
        trainer.should_stop = time.perf_counter() > self.end
        last = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        if self.every and (last or (trainer.current_epoch + 1) % self.every == 0):
            self.rank()
            module.train()


def main():
    """Trains, then ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--model", choices=("hstu", "sasrec"), default="hstu")
    parser.add_argument("--loss", choices=("softmax", "sampled_softmax"), default="softmax", help="RecTools' own is softmax")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=-1, help="of an epoch, to time a part of one; -1: all")
    parser.add_argument("--minutes", type=float, default=1e9, help="no epoch begins later than this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--every", type=int, default=1000, help="epochs from one ranking to the next; 0: none")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lightning.seed_everything(1, verbose=False)

    log = pd.read_csv(options.log)
    log.columns = [Columns.User, Columns.Item, Columns.Weight, Columns.Datetime]
    log[Columns.Datetime] = pd.to_datetime(np.arange(len(log)), unit="s")  # the order of the file
    log[Columns.Weight] = 1
    last = ~log.duplicated(Columns.User, keep="last")
    dataset = Dataset.construct(log[~last])

    users = log[Columns.User].nunique()

    def rank():
        model.is_fitted = True  # so that it ranks between epochs
        lists = model.recommend(log[Columns.User].unique(), dataset, k=10, filter_viewed=True)
        found = lists.merge(log[last][[Columns.User, Columns.Item]], on=[Columns.User, Columns.Item])
        ndcg = (1 / np.log2(found[Columns.Rank] + 1)).sum() / users
        print(f"HR@10 {len(found) / users:.4f}  NDCG@10 {ndcg:.4f}", flush=True)

    def trainer():
        return lightning.Trainer(
            max_epochs=options.epochs, accelerator="gpu" if options.device == "cuda" else "cpu", devices=1, logger=False, callbacks=[Clock(options.minutes, options.every, rank)],
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            limit_train_batches=options.steps if options.steps > 0 else 1.0,
        )  # fmt: skip

    settings = {
        "n_blocks": 2, "n_heads": 1, "n_factors": 50, "dropout_rate": 0.2, "session_max_len": 200, "batch_size": 128,
        "loss": options.loss, "n_negatives": 128, "lr": 1e-3, "get_trainer_func": trainer,
        "recommend_torch_device": options.device,
    }  # fmt: skip
    if options.model == "hstu":
        settings["relative_time_attention"] = False
    model = (HSTUModel if options.model == "hstu" else SASRecModel)(**settings)
    model.fit(dataset)


main()
