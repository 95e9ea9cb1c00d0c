"""MirrorMaker 2 from Maven Central, with the properties that `rotunda mirror-config` prints."""

import os
import subprocess
from pathlib import Path

from ops.benchmarks.kafka import LOGGING
from ops.broker import output_of, rotunda
from ops.compatibility import preparation


class MirrorMaker:
    """MirrorMaker in a process of its own, which can be killed and started again."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        """``arguments``: those of `rotunda mirror-config`."""
        self._properties, self._directory = directory / "mirror.properties", directory
        self._properties.write_text(output_of(rotunda("mirror-config", *arguments)))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it logs into the directory."""
        logging = self._directory / "logging.properties"
        logging.write_text(LOGGING.format(log=self._directory / "mirror.log"))
        # Those of its own version first.
        jars = (preparation.MIRROR_JARS, preparation.KAFKA_JARS, preparation.JARS)
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *("java", "-XX:TieredStopAtLevel=1", "-Xmx512m", f"-Dlog4j2.configurationFile={logging}"),
                    *("-cp", os.pathsep.join(f"{each}/*" for each in jars)),
                    *("org.apache.kafka.connect.mirror.MirrorMaker", str(self._properties)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
