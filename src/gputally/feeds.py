"""What stands beside NVML and HTTP, made from the settings: other sources, virtual GPUs, the textfile."""

from __future__ import annotations

from gputally.config import Config
from gputally.ledger import Ledger
from gputally.outputs.site import Site
from gputally.outputs.textfile import Textfile


def textfile(config: Config, site: Site, ledger: Ledger) -> Textfile | None:
    """The textfile, if one is wanted; raises Unsafe where its folder is not to be trusted."""
    if config.textfile_directory is None:
        return None
    ledger.textfile_errors = 0

    def failed() -> None:
        ledger.textfile_errors = (ledger.textfile_errors or 0) + 1

    output = Textfile(config.textfile_directory, config.textfile_name, site.body, failed)
    output.check()
    return output
