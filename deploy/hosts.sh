#!/bin/bash
# Trains on machines that ssh reaches, each with turbogr and the data under the same paths:
#   deploy/hosts.sh HOSTS RANKS_A_HOST CONFIG [--key=value ...]      HOSTS: node1,node2
# When a rank or a machine fails all end; the same command goes on from the last checkpoint, with
# fewer hosts, too.
set -euo pipefail

usage="usage: deploy/hosts.sh HOSTS RANKS_A_HOST CONFIG [--key=value ...]"
hosts="${1:?$usage}"
ranks="${2:?$usage}"
config="${3:?$usage}"
shift 3

IFS=, read -ra names <<<"$hosts"
slots="$(printf "%s:$ranks," "${names[@]}")"
# Open MPI asks a silent machine whether it is still there after five minutes by itself, here after ten seconds.
keepalive=(--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 3)
# TGR_MPIRUN=echo shows what would be run.
exec "${TGR_MPIRUN:-mpirun}" --host "${slots%,}" -n "$((ranks * ${#names[@]}))" --bind-to none "${keepalive[@]}" -x NCCL_DEBUG \
  turbogr train "$config" --run.resume=true "$@"
