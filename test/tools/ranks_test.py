"""Ranks as processes that a launcher started: its variables are set here, the kernels emulated."""
import os
import signal
import socket
import time
import unittest

from harness import ToolTest, graph, named, read_safetensors, write_safetensors

LLAMA = "llama-fp32-op18"
OUTPUTS = graph(LLAMA, "outputs.safetensors")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Ranks(ToolTest):
    def launch(self, count, *arguments, world=None, each=None):
        """Starts the ranks; `each` may give a rank other arguments."""
        self.port = free_port()
        processes = []
        for rank in range(count):
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world or count),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.port),
            }
            mine = (each or {}).get(rank, arguments)
            processes.append(self.start("fusion-run", *mine, "--device=emulate", env=variables))
        self.addCleanup(lambda: [process.kill() for process in processes])
        return processes

    def finish(self, processes, exit=0):
        """(stdout, stderr) of each."""
        results = []
        for rank, process in enumerate(processes):
            results.append(process.communicate(timeout=240))
            self.assertEqual(process.returncode, exit, f"rank {rank}: {results[-1]}")
        return results

    def test_numbers(self):
        for count in (2, 4):
            results = self.finish(
                self.launch(count, *named(LLAMA, tp=count, expect=OUTPUTS,
                                          outputs=self.path("o.safetensors")))
            )
            self.assertIn("PASS", results[0][0])
            self.assertNotIn("FAIL", results[0][0])
            self.assertIn(f"{count} × emulation on the host, memory shared by processes", results[0][1])
            for out, err in results[1:]:  # rank 0 speaks for all
                self.assertEqual(out, "")
            self.assertEqual(read_safetensors(self.path("o.safetensors"))["logits"][:2],
                             ("F32", [2, 16, 256]))

    def test_caches_stay_on_their_ranks(self):
        name = "llama-fp16-decode"
        expected = graph(name, "outputs.safetensors")
        results = self.finish(self.launch(2, *named(name, tp=2, expect=expected), "--kv-capacity=24",
                                          "--decode=5"))
        self.assertRegex(results[0][0], r"present_key_1 2x2x13x32 f16 max_abs \S+ rel_l2 \S+ PASS\n")
        self.assertNotIn("FAIL", results[0][0])
        self.assertRegex(results[0][0], r"decode: 5 steps, .* planned 1 times, .* recorded 1 times, replayed 5 times")

    def test_a_wrong_answer_is_one_on_every_rank(self):
        self.finish(self.launch(2, *named(LLAMA, tp=2, expect=OUTPUTS), "--rtol=0"), exit=1)

    def test_a_killed_rank_is_named_in_the_middle_of_a_run(self):
        for victim in (0, 1):
            processes = self.launch(2, *named(LLAMA, tp=2), "--bench=1000000")
            # Two ranks that have met keep no port open.
            self.wait_until_they_run(processes)
            processes[victim].send_signal(signal.SIGKILL)
            processes[victim].communicate()
            out, err = processes[1 - victim].communicate(timeout=240)
            self.assertEqual(processes[1 - victim].returncode, 3, err)
            self.assertIn(f"rank {victim} (", err)
            self.assertIn(f"process {processes[victim].pid}) is gone", err)
            self.assertEqual(out, "")
            self.assertEqual([name for name in os.listdir("/dev/shm") if "fusion" in name], [])

    def wait_until_they_run(self, processes):
        """Rank 0 says so on stderr, after its first run."""
        line = ""
        while "kernels, " not in line:
            line = processes[0].stderr.readline()
            self.assertNotEqual(line, "", "rank 0 ended")
        time.sleep(0.5)

    def test_ranks_that_would_not_run_the_same_refuse(self):
        other = self.path("other.safetensors")
        kind, (rows, columns), data = read_safetensors(graph(LLAMA, "inputs.safetensors"))["input_ids"]
        tensors = {"input_ids": (kind, [rows, columns - 1], data[: -8 * rows])}
        write_safetensors(other, tensors)
        shorter = [graph(LLAMA), f"--inputs={other}", "--tp=2"]
        for out, err in self.finish(self.launch(2, *named(LLAMA, tp=2), each={1: shorter}), exit=2):
            self.assertEqual(out, "")
            self.assertRegex(err, r"the ranks would not run the same; rank 0: input input_ids i64 \[2, 16\]; rank 1: input input_ids i64 \[2, 15\]")
        unfused = [*named(LLAMA, tp=2), "--no-fuse"]
        for out, err in self.finish(self.launch(2, *named(LLAMA, tp=2), each={1: unfused}), exit=2):
            self.assertRegex(err, r"the ranks would not run the same; rank 0: .*; rank 1: ")

    def test_one_ranks_error_reaches_the_others(self):
        broken = [graph(LLAMA), f"--inputs={OUTPUTS}", "--tp=2"]
        processes = self.launch(2, *named(LLAMA, tp=2), each={1: broken})
        (_, first), (_, second) = [process.communicate(timeout=240) for process in processes]
        self.assertEqual([process.returncode for process in processes], [3, 2])
        self.assertIn("rank 1: ", first)
        self.assertIn("rank 1: ", second)

    def test_launches_that_do_not_fit_are_refused(self):
        variables = {"RANK": "0", "WORLD_SIZE": "4"}
        self.refuse("fusion-run", *named(LLAMA, tp=2, device="emulate"), "--quiet", env=variables,
                    says="started 4 ranks, but the program is for 2")
        self.refuse("fusion-run", *named(LLAMA, tp=2, device="emulate"), "--quiet",
                    env={"RANK": "x", "WORLD_SIZE": "2"}, says="RANK=x")
        (_, err), = self.finish(
            [self.start("fusion-run", *named(LLAMA, tp=2, device="emulate"),
                        env={**variables, "WORLD_SIZE": "2", "FUSION_RENDEZVOUS_SECONDS": "1"})],
            exit=3,
        )
        self.assertIn("rank 1 did not come within 1 s", err)
        # Of one process the launcher started, the ranks are threads as ever.
        self.run_tool("fusion-run", *named(LLAMA, tp=2, device="emulate", expect=OUTPUTS),
                      env={"RANK": "0", "WORLD_SIZE": "1"})


if __name__ == "__main__":
    unittest.main()
