"""hermes-session-deliver: carry handoffs out where no gateway runs"""

import time
from collections.abc import Iterable, Iterator
from typing import Annotated

from hermes_tools.console import streams, text, worker
from hermes_tools.console.app import entry
from hermes_tools.console.options import Changing, Output, option
from hermes_tools.console.shell import CmdTimeout
from hermes_tools.console.streams import Record
from hermes_tools.console.worker import Worker
from hermes_tools.store import handoff, inuse
from hermes_tools.store.errors import Busy

Once = Annotated[bool, option("--once", help="Carry out what waits now, and end; for cron.")]
Agent = Annotated[
    str,
    option("--agent", metavar="CMD", show_default=False,
           help="The agent's turn; {session_id} and {prompt} are put in, quoted; its output is "
           f"the reply. Default: {worker.AGENT}"),
]  # fmt: skip
Deliver = Annotated[
    str | None,
    option("--deliver", metavar="CMD",
           help="Deliver by this program: the record with the reply on standard input, the id "
           "of the thread on standard output."),
]  # fmt: skip
AgentTimeout = Annotated[
    float,
    option("--agent-timeout", metavar="SECONDS", min=0, show_default=False,
           help="How long the agent's turn may take, default 600."),
]  # fmt: skip

EVERY = 2.0


def deliver(
    output: Output, store: Changing, once: Once = False, agent: Agent = worker.AGENT,
    deliver: Deliver = None, agent_timeout: AgentTimeout = 600.0, cmd_timeout: CmdTimeout = 120.0,
) -> None:  # fmt: skip
    """Carry pending handoffs out in a home whose gateway does not run.

    For each: a fresh thread at the platform's home channel, a turn of the agent that sums up,
    its reply in the thread, and the thread's messages go to the session from then on.
    """
    with store.write(messages=False) as db:
        handoff.require(db)
        at_work = Worker(db, store.place, agent, deliver, agent_timeout, cmd_timeout)
        output.write(carried(at_work, once), told, store.quiet)


def carried(at_work: Worker, once: bool) -> Iterator[Record]:
    """Carry out what is pending, every two seconds; nothing while a gateway runs. Raises Busy
    with `once`; a worker that goes on waits a locked store out.
    """
    told_of_gateway = False
    while True:
        try:
            running = inuse.gateway(at_work.home, at_work.db) is not None
            if running and once:
                raise Busy(f"{at_work.home}: a gateway is running; handoffs are its own to take")
            if running and not told_of_gateway:
                streams.complain(f"{at_work.home}: a gateway is running; waiting until it does not")
            told_of_gateway = running
            if not running:
                yield from shown(at_work.recover())
                for one in at_work.pending():
                    record = at_work.carry(one)
                    if record is not None:
                        yield from shown([record])
        except Busy as error:
            if once:
                raise
            streams.complain(str(error))
        if once:
            return
        time.sleep(EVERY)


def shown(records: Iterable[Record]) -> Iterator[Record]:
    """Records that reach their reader at once: the next may be hours away."""
    for record in records:
        yield record
        streams.flush()


def told(records: Iterable[Record]) -> Iterator[str]:
    """A handoff in words."""
    for one in records:
        reason = f": {text.line(one['error'])}" if one["error"] else ""
        yield f"{one['session_id']}: {one['state']} ({text.line(one['platform'])}){reason}"


main = entry(deliver)
