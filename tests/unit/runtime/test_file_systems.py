"""Types of mounted file systems, from the text of the kernel."""

from __future__ import annotations

import os

from barnabas.runtime.system_calls import file_system_type, reports_failed_writes

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
31 23 0:28 / /mnt/with\\040space rw - overlay overlay rw,upperdir=/a - b
40 27 8:1 / /data rw
"""


def test_the_type_of_a_file_system_is_found_by_its_device() -> None:
    assert file_system_type(os.makedev(254, 0), MOUNTS) == "ext4"
    assert file_system_type(os.makedev(0, 28), MOUNTS) == "overlay"
    assert file_system_type(os.makedev(0, 2), MOUNTS) is None
    assert file_system_type(os.makedev(8, 1), MOUNTS) is None
    assert file_system_type(os.makedev(8, 1), "") is None


def test_a_file_system_of_the_kernel_reports_no_failed_writes() -> None:
    assert not reports_failed_writes("/dev")
    assert not reports_failed_writes("/no/such/directory")
