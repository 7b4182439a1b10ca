"""Writes `shipped_by_position.csv`: distance of every shipped network from the exact posterior, by position.

    python docs/_data/shipped_by_position.py

The sequences are those of the cards (seed 20,000); of tasks with several slices the primary one.
"""

import csv
from pathlib import Path

from interp.wind_tunnels.evaluation.checkpoint import evaluate_model
from interp.wind_tunnels.networks.weights import load_weights, open_tunnel

from interp.loading.sources import shipped_tunnels

COLUMNS = ("evidence", "kl_bits", "kl_bits_low", "kl_bits_high", "tvd")


def main() -> None:
    with Path(__file__).with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("network", "task", "architecture", "position", *COLUMNS))
        for name, folder in shipped_tunnels().items():
            tunnel = open_tunnel(folder)
            found = evaluate_model(load_weights(folder), tunnel.task)
            table = found.by_position
            if "slice" in table:
                table = table.where(table["slice"] == table["slice"][0])
            for i in range(table.n_rows):
                cells = [f"{table[column][i]:.4g}" for column in COLUMNS]
                writer.writerow((name, tunnel.card["task"], tunnel.card["arch"], int(table["position"][i]), *cells))
            print(name, flush=True)


if __name__ == "__main__":
    main()
