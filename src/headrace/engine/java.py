"""Java: Spark needs version 17 or newer; find it, or say exactly how to get it.

And what else Java asks of a machine: that the user has a name.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from glob import glob
from pathlib import Path

from headrace.errors import RunError

OLDEST = 17
PLACES = (  # of Javas that are installed without being on the PATH
    "/usr/lib/jvm/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


def find_java() -> str:
    """The `java` that Spark will use; sets JAVA_HOME if only another place has a good one."""
    home = os.environ.get("JAVA_HOME")
    named = [os.path.join(home, "bin", "java")] if home else []
    on_path = shutil.which("java")
    seen: dict[str, int] = {}
    for java in [*named, *([on_path] if on_path else []), *_installed()]:
        seen[java] = _version(java)
        if seen[java] >= OLDEST:
            os.environ["JAVA_HOME"] = str(Path(java).resolve().parent.parent)
            return java
    versions = ", ".join(
        f"{java} is version {version}" for java, version in seen.items() if version
    )
    raise RunError(
        "HR-RUN-002",
        f"Spark needs Java {OLDEST} or newer, found {versions or 'none'}",
        "Install it: `sudo apt install openjdk-17-jre-headless` (Debian, Ubuntu; "
        "openjdk-21-jre-headless where there is no 17), `sudo dnf install "
        "java-21-openjdk-headless` (Fedora, RHEL), `brew install openjdk@17` (macOS). "
        "If it is installed already, set JAVA_HOME to its folder.",
    )


def check_user() -> None:
    """Refuse a user without a name, as a container may have: Hadoop's login fails on it."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise RunError(
            "HR-RUN-016",
            f"the user with the id {os.geteuid()} has no entry in /etc/passwd, and Spark needs one",
            f"Add one (in an image: `RUN useradd --uid {os.geteuid()} app`), or run as a "
            "user that has one.",
        ) from None


def _installed() -> list[str]:
    """Javas beside the PATH, the oldest that will do first: Spark is tested with that one."""
    javas = [java for place in PLACES for java in sorted(glob(f"{place}/bin/java"))]
    return sorted(javas, key=_version)


def release_of(home: Path) -> str:
    """What the Java in this folder says of itself, without being started; empty if nothing."""
    release = home / "release"
    return release.read_text() if release.exists() else ""


def _version(java: str) -> int:
    release = release_of(Path(java).resolve().parent.parent)
    release_line = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release)
    if release_line:  # starting a JVM takes a moment
        return int(release_line[1])
    try:
        command = [java, "-version"]
        shown = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else 0
