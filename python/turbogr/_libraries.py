"""Where NVIDIA's libraries are that came as wheels: the engine opens them by itself when it needs them."""

import importlib.util
import os


def folders() -> list[str]:
    """Folders of cuBLASLt and NCCL in the wheels of this environment."""
    found = importlib.util.find_spec("nvidia")
    roots = list(found.submodule_search_locations or []) if found is not None else []
    places = [os.path.join(root, part, "lib") for root in roots for part in ("cu13", "cublas", "nccl")]
    return [place for place in places if os.path.isdir(place)]


def announce() -> None:
    """Tells the engine, and programs that this process starts, by TGR_CUDA_LIBRARIES, unless that is set."""
    places = folders()
    if places:
        os.environ.setdefault("TGR_CUDA_LIBRARIES", os.pathsep.join(places))
