"""A linear classifier of scikit-learn's digits; knows nothing of sweeps. See script.yaml."""

import argparse
import pickle
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

flags = argparse.ArgumentParser()
flags.add_argument("--alpha", type=float, default=1e-4)
flags.add_argument("--penalty", choices=["l1", "l2"], default="l2")
flags.add_argument("--epochs", type=int, default=9)
flags.add_argument("--save", type=Path, help="a folder for the model")
flags.add_argument("--resume", type=Path, help="a folder that --save wrote")
given = flags.parse_args()

images, digits = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
model, epoch = SGDClassifier(alpha=given.alpha, penalty=given.penalty, random_state=0), 0
if given.resume:
    model, epoch = pickle.loads((given.resume / "model.pkl").read_bytes())
while epoch < given.epochs:
    epoch += 1
    model.partial_fit(x, y, classes=range(10))
    if given.save:
        (given.save / "model.pkl").write_bytes(pickle.dumps((model, epoch)))
    print(f"epoch {epoch}: accuracy {model.score(x_test, y_test):.4f}")
