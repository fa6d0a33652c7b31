# Tests written as RUN lines: lit with FileCheck.
import os

import lit.formats

config.name = "fusion"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.fusion_binary_dir, "test", "lit")
config.excludes = ["data", "Inputs", "CMakeLists.txt"]

config.environment["PATH"] = os.pathsep.join([config.fusion_tools_dir, config.environment["PATH"]])
config.environment["FUSION_CACHE_DIR"] = os.path.join(config.fusion_binary_dir, "test-cache")
for name in ("HOME", "LD_LIBRARY_PATH"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

config.substitutions.append((r"\bFileCheck\b", config.filecheck))
# What fuses must not depend on the machine's GPU.
config.substitutions.append((r"\bfusion-opt\b", "fusion-opt --profit=model"))
config.substitutions.append((r"%examples", os.path.join(config.fusion_source_dir, "examples")))
