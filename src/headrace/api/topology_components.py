"""The components of a topology as they were declared, and what is refused of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.api.stream import Stream
from headrace.errors import PlanError, Site, did_you_mean
from headrace.ops.process.function import KeyedProcess
from headrace.ops.topology.bolt import DEFAULT
from headrace.ops.topology.groupings import MOST_TASKS, StreamGrouping
from headrace.ops.topology.numbered import NUMBER
from headrace.schema import ddl_type


@dataclass(frozen=True)
class Subscription:
    """One input of a bolt: the component and the stream it reads, and how rows are dealt out."""

    component: str
    stream: str
    grouping: StreamGrouping
    site: Site | None

    @property
    def label(self) -> str:
        """What the bolt calls this input; at rest."""
        return self.component if self.stream == DEFAULT else f"{self.component}.{self.stream}"


@dataclass
class Component:
    """A spout or a bolt as it was declared."""

    id: str
    what: Any
    tasks: int
    site: Site | None
    options: dict[str, Any] = field(default_factory=dict)
    inputs: list[Subscription] = field(default_factory=list)
    built: Stream | None = None  # what it emits, once it is a step
    done: bool = False


# What is refused.


def no_names(component: object, stream: object) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-005",
        f"a bolt reads {component!r}, stream {stream!r}",
        'Name one component and one stream: .shuffle("words"), .shuffle("split", "errors").',
    )


def declared_twice(id: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-001",
        f"two components are called {id!r}",
        "State, metrics and errors go by the name of a component: give each its own.",
    )


def bad_tasks(id: str, tasks: object) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-002",
        f"the bolt {id!r} has {tasks!r} tasks",
        f"Give a whole number from 1 to {MOST_TASKS}.",
    )


def splits_decide(id: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-003",
        f"the spout {id!r} is an input, whose splits say how many tasks read it",
        "Leave tasks out; set the partitions of the topic, the splits of the files, or "
        "splits= of hr.rows and hr.generate.",
    )


def stream_options(option: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-004",
        f"a stream that is a spout has no option {option!r}",
        "Pass it where the input is read.",
    )


def unknown_component(id: object, known: dict[str, Component], site: Site | None) -> PlanError:
    names = ", ".join(map(repr, known)) or "none"
    guess = did_you_mean(str(id), list(known))
    return PlanError(
        "HR-TOPOLOGY-005",
        f"there is no component {id!r}",
        f"{guess}Declared: {names}.",
        site=site,
    )


def no_stream(id: str, stream: str, site: Site | None) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-006",
        f"{id!r} emits nothing that {stream!r} could be",
        "It is an output, or a bolt that declares no output.",
        site=site,
    )


def no_inputs(id: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-007",
        f"the bolt {id!r} reads nothing",
        'Say what: topology.bolt(...).shuffle("words"), .fields("words", "word") ...',
    )


def twice(id: str, label: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-008",
        f"the bolt {id!r} reads {label!r} twice",
        "A bolt reads a stream by one grouping; declare a second bolt for another.",
    )


def no_fields(kind: str, component: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-009",
        f"{kind} names no field of {component!r}",
        f'Name the fields that decide: .{kind}("{component}", "word").',
    )


def too_late(id: str) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-010",
        f"{id!r} is part of the program already, and gets another input",
        "Say what a bolt reads before .stream(), .check(), .explain() or hr.run.",
    )


def no_bolt(id: str, what: Any) -> PlanError:
    is_class = isinstance(what, type) and issubclass(what, KeyedProcess)
    shown = what.__name__ if isinstance(what, type) else repr(what)
    hint = f"Write {shown}()." if is_class else 'Subclass hr.Bolt, or write "files:path".'
    return PlanError("HR-TOPOLOGY-012", f"the bolt {id!r} cannot be {shown}", hint)


def number_taken(subscription: Subscription) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-025",
        f"{subscription.component!r} has a field {NUMBER!r}, which is what windows call the number "
        "of their task",
        "Give the field another name, or leave it out: make a spout of "
        f"topology.stream({subscription.component!r}).drop({NUMBER!r}).",
    )


def window_direct(part: Component) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-026",
        f"the windows of {part.id!r} cannot be read by direct",
        "Group by fields, or by a function of your own.",
    )


def nested(subscription: Subscription, column: pa.Field) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-015",
        f"tuples of {subscription.component!r} cannot be grouped by {column.name!r}, which is "
        f"{ddl_type(column.type)}",
        "Group by plain fields: text, numbers, booleans, dates, timestamps.",
    )


def other_types(
    part: Component, one: Subscription, kind: pa.Field, other: Subscription, theirs: pa.Field
) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-050",
        f"{part.id!r} reads {one.label!r} by {kind.name!r}, which is {ddl_type(kind.type)}, and "
        f"{other.label!r} by {theirs.name!r}, which is {ddl_type(theirs.type)}: equal values would "
        "go to different tasks",
        "Tuples of two inputs meet only when the types of their fields are equal: cast one before.",
    )


def not_by_fields(part: Component, subscription: Subscription) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-016",
        f"{part.id!r} is a process function, whose state is by key, and reads "
        f"{subscription.component!r} by {subscription.grouping}",
        "Read it by .fields(...), whose fields are the key; or write a hr.Bolt.",
    )


def output_grouping(part: Component, grouping: StreamGrouping) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-017",
        f"the output {part.id!r} cannot be read by {grouping}",
        "Rows go to an output from wherever they are: use .shuffle or .global_.",
    )


def many_copies(part: Component) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-017",
        f"the output {part.id!r} has {part.tasks} tasks, each of which would write every tuple",
        "Leave tasks out, or read it by .shuffle, to write each tuple once.",
    )


def no_such_stream(id: str, stream: str, known: list[str], site: Site | None) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-013",
        f"{id!r} has no stream {stream!r}; it has {', '.join(map(repr, known)) or 'none'}",
        'Declare it in the bolt: output = "...", or outputs = {"name": "field type, ..."}.',
        site=site,
    )
