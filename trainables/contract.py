"""What a service and the workers that it gives orders to say to each other: the door for services.

An order and its answers (`Order`, `Report`, `Saved`, `Outcome`), a slot that takes orders
(`SlotConfig`, `Assignment`, the messages), the texts and logs that come back, and the limits that
both keep. What the code of a trial uses is in `trainables`. Names are loaded on first use, so that
importing this loads no torch, and a command only what it needs.
"""

from typing import TYPE_CHECKING

from trainables.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from trainables.combinations import nan_refusals as nan_refusals
    from trainables.combinations import refusals as refusals
    from trainables.dataset import LONGEST_SOURCE as LONGEST_SOURCE
    from trainables.dataset import DataSet as DataSet
    from trainables.errors import DISK_FULL_ERRNOS as DISK_FULL_ERRNOS
    from trainables.errors import DISK_FULL_TEXT as DISK_FULL_TEXT
    from trainables.errors import SUMMARY as SUMMARY
    from trainables.errors import encodable as encodable
    from trainables.errors import is_disk_full as is_disk_full
    from trainables.errors import last_raised as last_raised
    from trainables.errors import raised_line as raised_line
    from trainables.errors import shortened as shortened
    from trainables.errors import text_of as text_of
    from trainables.length import COUNTED as COUNTED
    from trainables.length import Length as Length
    from trainables.length import parts_of_epoch as parts_of_epoch
    from trainables.link import CheckpointSaved as CheckpointSaved
    from trainables.link import DataDeclared as DataDeclared
    from trainables.link import Report as Report
    from trainables.link import Suggestion as Suggestion
    from trainables.link import Unanswered as Unanswered
    from trainables.load import PICKLE as PICKLE
    from trainables.load import TRAINING as TRAINING
    from trainables.load import CodeChanged as CodeChanged
    from trainables.metrics import MOST_METRICS as MOST_METRICS
    from trainables.metrics import CheckedMetrics as CheckedMetrics
    from trainables.metrics import NoNumber as NoNumber
    from trainables.metrics import checked as checked
    from trainables.metrics import describe_left_out as describe_left_out
    from trainables.metrics import number_of as number_of
    from trainables.order import Order as Order
    from trainables.order import Params as Params
    from trainables.programs.arguments import quote_for_hydra as quote_for_hydra
    from trainables.programs.command import PYTHONS as PYTHONS
    from trainables.programs.command import Command as Command
    from trainables.programs.command import remark_on_python as remark_on_python
    from trainables.programs.command import search_paths as search_paths
    from trainables.programs.rendezvous import LOOPBACK as LOOPBACK
    from trainables.programs.server import COST as COST
    from trainables.programs.server import TOKENS as TOKENS
    from trainables.programs.server import Server as Server
    from trainables.runtime.assignment import Assignment as Assignment
    from trainables.runtime.assignment import Inherited as Inherited
    from trainables.runtime.assignment import Outcome as Outcome
    from trainables.runtime.assignment import OutcomeKind as OutcomeKind
    from trainables.runtime.assignment import SlotConfig as SlotConfig
    from trainables.runtime.assignment import carry_out as carry_out
    from trainables.runtime.assignment import log_file as log_file
    from trainables.runtime.assignment import outcome_kind as outcome_kind
    from trainables.runtime.assignment import trial_seed as trial_seed
    from trainables.runtime.output import appending as appending
    from trainables.runtime.output import bounded as bounded
    from trainables.runtime.output import filter_output as filter_output
    from trainables.runtime.output import shorten as shorten
    from trainables.runtime.output import under_a_panel as under_a_panel
    from trainables.runtime.redaction import redact as redact
    from trainables.runtime.variants import CodeVariants as CodeVariants
    from trainables.runtime.wire import Beat as Beat
    from trainables.runtime.wire import Call as Call
    from trainables.runtime.wire import Message as Message
    from trainables.runtime.wire import OrderMessage as OrderMessage
    from trainables.runtime.wire import OrderPlaced as OrderPlaced
    from trainables.runtime.wire import PreemptionStarted as PreemptionStarted
    from trainables.runtime.wire import Ready as Ready
    from trainables.stop_signals import SIGTERM_TEXT as SIGTERM_TEXT
    from trainables.stop_signals import How as How
    from trainables.storage.checkpoint import FOREIGN as FOREIGN
    from trainables.storage.checkpoint import CheckpointDamaged as CheckpointDamaged
    from trainables.storage.checkpoint import Every as Every
    from trainables.storage.checkpoint import Period as Period
    from trainables.storage.checkpoint import Saved as Saved
    from trainables.storage.file_lock import locked as locked
    from trainables.storage.stores import StoreFailed as StoreFailed
    from trainables.storage.stores import is_url as is_url
    from trainables.strategies import STRATEGIES as STRATEGIES
    from trainables.strategies import default_strategy as default_strategy
    from trainables.training import OF_PROCESS as OF_PROCESS
    from trainables.training import Training as Training
    from trainables.worker import Nan as Nan
    from trainables.worker import Worker as Worker
else:
    __getattr__, __dir__ = lazy_imports(__name__)
    __all__ = __dir__()
