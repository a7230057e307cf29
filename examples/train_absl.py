"""A linear classifier of scikit-learn's digits, with absl's flags. See script_absl.yaml."""

import pickle
from pathlib import Path

from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

FLAGS = flags.FLAGS
flags.DEFINE_float("sgd.alpha", 1e-4, "weight of the penalty")
flags.DEFINE_bool("average", False, "use the averaged weights")
flags.DEFINE_integer("epochs", 9, "epochs in all")
flags.DEFINE_string("workdir", None, "a folder for the model")
flags.DEFINE_string("restore", None, "a folder that --workdir named before")


def main(argv: list[str]) -> None:
    """Train, and print the accuracy of each epoch."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
    alpha, epoch = FLAGS["sgd.alpha"].value, 0
    model = SGDClassifier(alpha=alpha, average=FLAGS.average, random_state=0)
    if FLAGS.restore:
        model, epoch = pickle.loads(Path(FLAGS.restore, "model.pkl").read_bytes())
    while epoch < FLAGS.epochs:
        epoch += 1
        model.partial_fit(x, y, classes=range(10))
        if FLAGS.workdir:
            Path(FLAGS.workdir, "model.pkl").write_bytes(pickle.dumps((model, epoch)))
        print(f"epoch {epoch}: accuracy {model.score(x_test, y_test):.4f}")


if __name__ == "__main__":
    app.run(main)
