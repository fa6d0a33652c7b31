"""fusion-cache, and what the other tools do with a cache that is damaged, read-only, full or too large."""
import os
import pwd
import stat
import struct
import unittest

from harness import BINARIES, ToolTest, write_safetensors

graph = """func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = nn.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
"""


class Cache(ToolTest):
    def setUp(self):
        super().setUp()
        self.write("g.mlir", graph)
        write_safetensors(self.path("in.safetensors"),
                          {"arg0": ("F32", [4, 8], struct.pack("<32f", *[0.5] * 32))})
        self.own = self.path("cache")

    def emulate(self, **options):
        return self.run_tool(
            "fusion-run", self.path("g.mlir"), f"--inputs={self.path('in.safetensors')}", "--device=emulate",
            env={"FUSION_CACHE_DIR": self.own, "FUSION_CACHE_SIZE": options.pop("size", "")}, **options,
        )

    def cache_tool(self, *arguments, exit=0):
        return self.run_tool("fusion-cache", *arguments, f"--cache={self.own}", exit=exit)[0]

    def files(self):
        found = (os.path.join(where, name) for where, _, names in os.walk(self.own) for name in names)
        return sorted(file for file in found if os.path.basename(file) not in ("key", "checked"))

    def test_list_check_clear(self):
        self.assertIn("0 files", self.cache_tool("list"))
        self.emulate()
        listed = self.cache_tool("list")
        for kind in ("plan", "library"):
            self.assertIn(kind, listed)
        self.assertNotIn("damaged", listed)
        self.cache_tool("check")
        self.assertEqual(stat.S_IMODE(os.stat(self.own).st_mode), 0o700)
        for file in self.files():
            if file.endswith(".h"):
                continue
            with open(file, "rb+") as damaged:
                data = bytearray(damaged.read())
                data[len(data) * 2 // 3] ^= 16
                damaged.seek(0)
                damaged.write(data)
        self.assertIn("damaged", self.cache_tool("check", exit=1))
        self.emulate()  # made anew
        self.cache_tool("check")
        self.cache_tool("clear")
        self.assertEqual(self.files(), [])
        self.emulate()
        self.cache_tool("clear", "--keep=1T")
        self.assertNotEqual(self.files(), [])

    def test_what_a_process_is_writing_is_not_damaged(self):
        self.emulate()
        mine = os.path.join(self.own, "emulated", f"building-{os.getpid()}-0.cpp")
        for name in (mine, os.path.join(self.own, "plan.aB3dE6")):
            with open(name, "w") as file:
                file.write("half")
        self.assertIn("unfinished", self.cache_tool("list"))
        self.assertNotIn("damaged", self.cache_tool("check"))
        os.rename(mine, mine.replace(str(os.getpid()), "999999999"))  # of a process that is gone
        self.assertIn("1 damaged", self.cache_tool("check", exit=1))

    def test_says_what_is_wrong(self):
        for arguments in ((), ("lst",), ("list", "--keep=1G"), ("clear", "--keep=much")):
            self.refuse("fusion-cache", *arguments, f"--cache={self.own}")
        os.mkdir(self.own, 0o700)
        os.chmod(self.own, 0o777)
        self.refuse("fusion-cache", "list", f"--cache={self.own}", exit=3, says="others may write")

    def test_a_warm_folder_that_is_read_only_serves(self):
        self.emulate()
        if os.geteuid() != 0:
            self.skipTest("wants another user")
        # Root's folder, and everybody may read it.
        for where, _, names in os.walk(self.folder):
            os.chmod(where, 0o755)
            for name in names:
                os.chmod(os.path.join(where, name), 0o644)
        before = self.files()
        nobody = pwd.getpwnam("nobody")
        probe = os.spawnv(os.P_WAIT, "/usr/bin/setpriv",
                          ["setpriv", f"--reuid={nobody.pw_uid}", "--clear-groups",
                          "test", "-x", os.path.join(BINARIES, "fusion-run")])
        if probe != 0:
            self.skipTest("others cannot run the tools")
        _, err = self.emulate(user=nobody.pw_uid)
        self.assertNotIn("compile", err)
        self.assertEqual(self.files(), before)

    def test_a_full_disk_costs_the_cache_only(self):
        os.mkdir(self.own, 0o700)
        if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=64k,mode=700 none {self.own} 2>/dev/null") != 0:
            self.skipTest("cannot mount a small disk")
        self.addCleanup(os.system, f"umount {self.own}")
        self.emulate()
        with open(self.path("cache/filler"), "wb", buffering=0) as filler:
            try:
                for _ in range(64):
                    filler.write(bytes(4096))
            except OSError:
                pass
        self.write("g.mlir", graph.replace("nn.relu", "nn.exp"))
        _, err = self.emulate()
        self.assertIn("cannot be written to", err)


if __name__ == "__main__":
    unittest.main()
