// The prologue: the norm of A's rows, with the add in front of it. Every block of a kernel for few rows
// computes all of them into shared memory; what others read of it is written by the first block.
#include "codegen/schedule/MatmulProblem.h"
#include "codegen/schedule/RowBody.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

/// What A may take of a block's shared memory, of 48 KiB; the rest is for the sums of a strip.
static constexpr int64_t mostBytes = 32 << 10;

SmallVector<Operation *> prologueOps(const Region &region, const Product &matmul) {
  SmallVector<Operation *> ops;
  SmallVector<Value> pending{matmul.getA()};
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op || llvm::is_contained(region.inputs, value) || llvm::is_contained(ops, op))
      continue;
    ops.push_back(op);
    pending.append(op->operand_begin(), op->operand_end());
  }
  if (llvm::none_of(ops, llvm::IsaPred<nn::RmsNormOp, nn::LayerNormOp>))
    return {};
  return llvm::filter_to_vector(region.ops, [&](Operation *op) { return llvm::is_contained(ops, op); });
}

/// The prologue as a region of its own: A, then what else leaves.
static Region prologueRegion(const Region &region, const Problem &problem) {
  Region own;
  own.anchor = region.anchor;
  own.inputs = region.inputs;
  own.pattern = region.pattern;
  own.ops = problem.prologue;
  const Product &first = problem.op;
  own.outputs = {first.getA()};
  for (unsigned output : problem.prologueOutputs)
    own.outputs.push_back(region.outputs[output]);
  return own;
}

static int64_t rowBytes(const Problem &problem) {
  return *problem.k.constant() * static_cast<int64_t>(byteSize(problem.a.type));
}

int64_t prologueBytes(const Problem &problem) { return problem.mostRows * rowBytes(problem); }

int64_t prologueRows(const Problem &problem) {
  return std::min(fewRows(problem), mostBytes / rowBytes(problem));
}

std::optional<std::string> refusesPrologue(const Region &region, const KernelContext &context,
                                           const Problem &problem) {
  if (problem.prologue.empty())
    return std::nullopt;
  for (Operation *op : region.ops) {
    if (llvm::is_contained(problem.prologue, op))
      continue;
    auto matmul = dyn_cast<nn::MatmulOp>(op);
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          llvm::is_contained(problem.prologue, producer) && !isa<nn::ConstantOp>(producer) &&
          !(matmul && operand == matmul.getA() && operand != matmul.getB()))
        return (op->getName().getStringRef() + " reads what the prologue of nn.matmul computes").str();
  }
  const Product &first = problem.op;
  if (!problem.batch.empty() || first.getTransposeA() || problem.k.constant().value_or(0) == 0)
    return std::string("a norm in the prologue of nn.matmul that is batched, of a transpose, of a run-time "
                       "size or of nothing");
  if (fewRows(problem) == 0)
    return std::string("a norm in the prologue of nn.matmul needs a kernel for few rows, which takes f32, "
                       "f16 and bf16 and a "
                       "contiguous second operand");
  const int64_t most = prologueRows(problem);
  if (most == 0)
    return fmt::format("a normalised row of {} bytes, shared memory has room for {}", rowBytes(problem),
                       mostBytes);
  if (std::optional<int64_t> rows = problem.m.constant();
      rows && !context.batchInvariant && (*rows < 1 || *rows > most))
    return fmt::format(
        "a norm in the prologue of nn.matmul of rows of {} bytes is for 1 to {} rows: here there are {}",
        rowBytes(problem), most, *rows);
  auto graph = row::buildGraph(prologueRegion(region, problem), context);
  if (auto *reason = std::get_if<std::string>(&graph))
    return "prologue of nn.matmul: " + *reason;
  if (std::get<row::Graph>(graph).groupSize != 0)
    return std::string("values per group in the prologue of nn.matmul");
  if (problem.m.constant() && !context.batchInvariant)
    return std::nullopt;
  const Region norm = splitPrologue(region, problem).first;
  if (auto plan = rowSchedule().plan(norm, context); !plan)
    return "prologue of nn.matmul: " + plan.error().message;
  return std::nullopt;
}

std::pair<Region, Region> splitPrologue(const Region &region, const Problem &problem) {
  std::pair<Region, Region> parts{prologueRegion(region, problem), region};
  Region &second = parts.second;
  const Product &first = problem.op;
  SmallVector<Value> &made = parts.first.outputs;
  made.erase(std::remove(made.begin() + 1, made.end(), made.front()), made.end()); // it leaves, too
  second.inputs.push_back(first.getA());
  llvm::erase_if(second.ops, [&](Operation *op) {
    return llvm::is_contained(problem.prologue, op) && !isa<nn::ConstantOp>(op);
  });
  second.outputs.clear();
  for (auto [index, output] : llvm::enumerate(region.outputs))
    if (!llvm::is_contained(problem.prologueOutputs, index))
      second.outputs.push_back(output);
  return parts;
}

void emitPrologue(body::KernelSource &source, body::Code &code, const Region &region,
                  const KernelContext &context, const Problem &problem, int64_t threads,
                  const std::string &arrayType, PrologueRegisters registers) {
  KernelContext plain = context;
  plain.outputs = {};
  auto built = row::buildGraph(prologueRegion(region, problem), plain);
  row::Graph &graph = std::get<row::Graph>(built);
  for (auto [index, store] : llvm::enumerate(graph.stores)) {
    if (index == 0) {
      store.into = "normal";
      store.intoType = arrayType;
      continue;
    }
    store.access.index = problem.prologueOutputs[index - 1];
    store.condition = "block_x() == 0";
  }
  const auto blockThreads = static_cast<uint32_t>(threads);
  const row::Layout layout = row::layoutWithin(graph, problem.mostRows, blockThreads, registers.held),
                    ofOne = row::layoutWithin(graph, 1, blockThreads, registers.held);
  auto print = [&](const row::Layout &chosen, const char *name, const char *turn) {
    row::BodyPrinter printer(region, plain, graph, chosen, source, name);
    printer.within();
    if (registers.ahead > 0)
      printer.ahead(registers.ahead);
    code.line(printer.print(turn));
  };
  source.include("prelude.cuh");
  code.line("// Every block computes the rows of A; the first one writes what others read of it.");
  // One row by all of the block, where its sums may be added up in another order than those of several rows.
  const bool hasOne = problem.leastRows <= 1 && problem.mostRows > 1 && !layout.wholeBlock() &&
                      ofOne.wholeBlock() && !context.batchInvariant;
  if (hasOne) {
    code.line(fmt::format("if ({} == 1) {{", source.size(problem.m)));
    print(ofOne, "OneNorm", "0");
    code.line("} else {");
  }
  const int64_t atOnce = layout.rowsPerBlock(), turns = llvm::divideCeil(problem.mostRows, atOnce);
  // Before the last turn: at the last row.
  const std::string end = turns > 1 && problem.leastRows <= (turns - 1) * atOnce
                              ? fmt::format(" && turn{} < {}", atOnce > 1 ? fmt::format(" * {}", atOnce) : "",
                                            source.size(problem.m))
                              : "";
  code.line(turns > 1 ? fmt::format("for (int turn = 0; turn < {}{}; ++turn) {{", turns, end) : "{");
  print(layout, "Norm", turns > 1 ? "turn" : "0");
  if (layout.wholeBlock())
    code.line("barrier(); // the next row's reductions use the same shared memory");
  code.line("}");
  if (hasOne)
    code.line("}");
  if (!layout.wholeBlock())
    code.line("barrier();");
}

} // namespace fusion::matmul
