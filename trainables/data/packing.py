"""Documents of tokens joined end to end and cut into windows, so that only the last is padded.

Axes: N tokens of all documents, W windows, T tokens of a window.
Source of packing: Raffel et al., Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer (2020), section 3.1.1; of keeping packed documents apart by their ids:
Krell et al., Efficient Sequence Packing without Cross-contamination (2021), section 3.2.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.data.sources import Tensors

IGNORED = -100  # a target that does not count; cross_entropy's default ignore_index
NO_DOCUMENT = -1  # the document number of padding in the last window


def pack(documents: Iterable[Sequence[int]], length: int) -> Tensors:
    """Pack documents into windows of tokens, their targets, and the document of each token.

    Each token but a document's first is a target exactly once; the target of a document's last
    token is IGNORED, and so are those of padding. To keep attention within documents, use the mask
    `document_BT[:, :, None] == document_BT[:, None, :]`.

    Returns:
        token_WT, target_WT and document_WT (numbers as in `documents`).

    Raises:
        ValueError: length is not positive, or no document has two tokens.
    """
    if length < 1:
        raise ValueError(f"pack: length is {length}; give 1 token or more")
    texts = [np.asarray(document, dtype=np.int64) for document in documents]
    if max(map(len, texts), default=0) < 2:
        raise ValueError("pack: no document has two tokens, so there is nothing to predict")
    token_N = np.concatenate(texts)
    document_N = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    target_N = np.where(document_N[1:] == document_N[:-1], token_N[1:], IGNORED)
    return Tensors(
        _cut_windows(token_N[:-1], length, 0),
        _cut_windows(target_N, length, IGNORED),
        _cut_windows(document_N[:-1], length, NO_DOCUMENT),
    )


def _cut_windows(value_N: NDArray[np.int64], length: int, filling: int) -> Tensor:
    missing = -len(value_N) % length
    filled = np.pad(value_N, (0, missing), constant_values=filling)
    return torch.from_numpy(filled.reshape(-1, length))
