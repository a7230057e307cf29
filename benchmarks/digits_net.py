"""The training of the pages in docs/explanation/beside: a network on scikit-learn's digits."""

from collections.abc import Iterator

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def accuracies(lr: float, width: int, alpha: float) -> Iterator[float]:
    """Train for nine epochs, and yield the accuracy on held-out digits after each."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, test_size=0.5, random_state=0)
    net = MLPClassifier((width,), learning_rate_init=lr, alpha=alpha, batch_size=8, random_state=0)
    for _ in range(9):
        net.partial_fit(x, y, classes=range(10))
        yield float(net.score(x_test, y_test))
