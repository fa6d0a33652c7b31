#include "codegen/schedule/MatmulSource.h"
#include "codegen/schedule/MatmulSwap.h"
#include "codegen/schedule/RowExchange.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

GemmSource::GemmSource(const Region &region, const KernelContext &context, const Problem &problem,
                       std::string name)
    : region(region), context(context), problem(problem), name(std::move(name)),
      source(region, context.inputs) {
  source.config = body::Config("Config", "GemmConfig");
  if (problem.matmuls.size() > 1)
    set("matmuls", static_cast<int64_t>(problem.matmuls.size()));
  if (problem.combined)
    set("combined", true);
  if (!problem.batch.empty())
    set("batched", true);
  if (problem.routing)
    set("group_per_row", problem.mostRows <= problem.routing->experts);
}

void GemmSource::setWeightsBeforeWait() {
  readsEarly = (!problem.routing || context.isIndependentOfPredecessor(problem.routing->input)) &&
               llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
                 return context.isIndependentOfPredecessor(matmul.b.input);
               });
  set("weights_before_wait", readsEarly);
}

std::string GemmSource::sizes() {
  const std::string m = source.size(problem.m), k = source.size(problem.k);
  const bool alike = !problem.sideBySide() || llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    return matmul.n == problem.n;
  });
  if (alike)
    return fmt::format("Sizes{{{}, {}, {}}}", m, source.size(problem.n), k);
  const bool isStatic =
      llvm::all_of(problem.matmuls, [](const Matmul &matmul) { return matmul.n.constant(); });
  if (isStatic) {
    SmallVector<std::string> widths;
    for (const Matmul &matmul : problem.matmuls)
      widths.push_back(source.size(matmul.n));
    return fmt::format("SizesPerMatmul<{}>{{{}, {}}}", llvm::join(widths, ", "), m, k);
  }
  body::Functor shape(source, "Shape");
  std::string width;
  for (auto [index, matmul] : llvm::enumerate(problem.matmuls))
    width +=
        (index + 1 < problem.matmuls.size() ? fmt::format("matmul == {} ? {} : ", index, shape.size(matmul.n))
                                            : shape.size(matmul.n));
  shape.method("DEVICE i64 m() const", shape.size(problem.m));
  shape.method("DEVICE i64 n(int matmul) const", width);
  shape.method("DEVICE i64 k() const", shape.size(problem.k));
  source.declare(shape.text());
  return shape.instance();
}

std::string GemmSource::prologue(body::Code &entry, uint32_t threads) {
  if (problem.prologue.empty())
    return "NoPrologue{}";
  entry.line(rowsType.empty()
                 ? fmt::format("const auto prologue = [&]({} *normal) {{", body::spelling(problem.a.type))
                 : fmt::format("const auto prologue = [&](const {} &normal) {{", rowsType));
  emitPrologue(source, entry, region, context, problem, threads, rowsType, prologueRegisters);
  entry.line("};");
  return "prologue";
}

std::string declareRouting(body::KernelSource &source, const Problem &problem, bool isEarly) {
  const Routing &routing = *problem.routing;
  body::Functor functor(source, "Routing");
  scalar::Graph graph;
  body::Names names;
  body::Printer printer(graph, names);
  body::Code code(2);
  const scalar::Value row = graph.input("row", DType::I64, scalar::Level::Element);
  scalar::Value place = functor.size(graph, routing.view.offset);
  if (std::optional<Dim> stride = mergedStride(problem.rowDims, routing.view.strides)) {
    place = graph.add(place, graph.mul(row, functor.size(graph, *stride)));
  } else {
    auto at = functor.delinearize(graph, row, problem.rowDims);
    for (auto [index, stride] : llvm::zip(at, routing.view.strides))
      place = graph.add(place, graph.mul(index, functor.size(graph, stride)));
  }
  const scalar::Access access = isEarly ? scalar::Access::Early : scalar::Access::Plain;
  const scalar::Value chosen = graph.load(functor.pointer(routing.input, access), place);
  const std::string text = printer.value(graph.convertRegister(DType::I64, chosen), code);
  code.line(fmt::format("return {};", text));
  functor.method("DEVICE i64 chosen(i64 row) const", code);
  functor.method("static DEVICE constexpr i64 experts()", source.size(Dim(routing.experts)));
  functor.method("DEVICE i64 rows() const", functor.size(problem.m));
  source.declare(functor.text());
  return functor.instance();
}

std::optional<std::string> GemmSource::plainEpilogue(const Sums &sums) {
  if (problem.combined || !isFloat(sums.type) || problem.matmuls.front().outputs.empty())
    return std::nullopt;
  const DType type = dtype(region.outputs[problem.matmuls.front().outputs.front()]);
  SmallVector<std::string> outputs;
  for (const Matmul &matmul : problem.matmuls) {
    if (matmul.outputs.size() != 1)
      return std::nullopt;
    const Value output = region.outputs[matmul.outputs.front()];
    if (output != matmul.op.getY() || dtype(output) != type || !isFloat(type) ||
        (sums.type == DType::F64 && type != DType::F64)) // narrower ones by way of f32
      return std::nullopt;
    outputs.push_back(source.output(matmul.outputs.front()));
  }
  const std::string count = outputs.size() == 1 ? "" : fmt::format(", {}", outputs.size());
  return fmt::format("StoreRounded<{}{}>{{{}}}", body::spelling(type), count, llvm::join(outputs, ", "));
}

std::string GemmSource::epilogue(const Sums &sums) {
  const bool handsOut = problem.largest == Problem::Largest::FoundAlone;
  if (auto plain = handsOut ? std::nullopt : plainEpilogue(sums))
    return *plain;
  body::Functor functor(source, "Epilogue");
  for (size_t index = 0; index < (problem.sideBySide() ? problem.matmuls.size() : 1); ++index)
    EpilogueWriter(region, context, problem, functor, sums, handsOut).write(index);
  source.declare(functor.text());
  return functor.instance();
}

std::string GemmSource::findingLargest(const std::string &epilogue, const Sums &sums) {
  source.include("arg_max_epilogue.cuh");
  return fmt::format("arg_max_epilogue<Config::rows, {}>({}, {}, {})", sums.warps, epilogue,
                     source.scratch(largestWords(problem.m, context.target), true), sums.partsOfRow);
}

/// `matmul_add_gelu_bf16_14336x4096`: what the kernel does, and n x k.
std::string GemmSource::kernelName() const {
  std::string text = body::kernelName(region, context);
  if (std::optional<int64_t> k = problem.k.constant(); k && problem.n.constant())
    text += "x" + std::to_string(*k);
  return text;
}

KernelDraft GemmSource::finishTiles(const Sums &sums, uint32_t threads, const TensorMapArgument &mapOfA,
                                    llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf) {
  source.include(byteSize(problem.a.type) == 1 ? name + "_bytes.cuh" : name + ".cuh");
  source.declare(source.config.text());
  SmallVector<std::string> arguments{sizes(), source.size(problem.batchCount()), scales(), epilogue(sums),
                                     source.tensorMap(problem.a.input, mapOfA)};
  for (const Matmul &matmul : problem.matmuls)
    arguments.push_back(source.tensorMap(matmul.b.input, mapOf(matmul)));
  const std::string code = fmt::format("  {}<Config>({});\n", name, llvm::join(arguments, ", "));
  return source.finish(
      {.schedule = "matmul", .code = code, .name = kernelName(), .threads = threads, .residentBlocks = 1});
}

KernelDraft GemmSource::finishExperts(const Sums &sums, uint32_t threads, const Dim &planElements,
                                      llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf) {
  source.include(name + ".cuh");
  source.declare(source.config.text());
  SmallVector<std::string> arguments{sizes(), operand(true), source.scratch(planElements, true),
                                     epilogue(sums)};
  for (const Matmul &matmul : problem.matmuls)
    arguments.push_back(source.tensorMap(matmul.b.input, mapOf(matmul)));
  const std::string code =
      fmt::format("  {}<Config, {}>({});\n", name, problem.routing->experts, llvm::join(arguments, ", "));
  return source.finish(
      {.schedule = "experts", .code = code, .name = kernelName(), .threads = threads, .residentBlocks = 1});
}

SmallVector<std::string> GemmSource::operands() {
  SmallVector<std::string> arguments{sizes(), operand(true), operand(false)};
  if (problem.routing)
    arguments.push_back(declareRouting(source, problem, readsEarly));
  return arguments;
}

std::string GemmSource::declareEpilogue(const std::string &name, const Region &part, const Problem &its,
                                        bool handsOut) {
  body::Functor functor(source, name);
  EpilogueWriter(part, context, its, functor, {}, handsOut).write(0);
  source.declare(functor.text());
  return functor.instance();
}

KernelDraft GemmSource::finishWithMaps(SmallVector<std::string> arguments, uint32_t threads,
                                       uint32_t clusterBlocks, const TensorMapArgument *mapOfA,
                                       llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf,
                                       const std::string &before) {
  if (mapOfA)
    arguments.push_back(source.tensorMap(problem.a.input, *mapOfA));
  for (const Matmul &matmul : problem.matmuls)
    arguments.push_back(source.tensorMap(matmul.b.input, mapOf(matmul)));
  const char *form = !mapOfA ? "_computed" : problem.norm ? "_normed" : "";
  const std::string call = fmt::format("  {}{}<Config>({});\n", name, form, llvm::join(arguments, ", "));
  return source.finish({.schedule = "matmul",
                        .code = before + call,
                        .name = kernelName(),
                        .threads = threads,
                        .residentBlocks = residentBlocks,
                        .clusterBlocks = clusterBlocks});
}

KernelDraft GemmSource::finishSwapAB(const Sums &sums, uint32_t threads, uint32_t clusterBlocks,
                                     const TensorMapArgument &mapOfA,
                                     llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf,
                                     const TileHeads *heads) {
  source.include(byteSize(problem.a.type) == 1 ? name + "_bytes.cuh" : name + ".cuh");
  source.declare(source.config.text());
  body::Code entry;
  SmallVector<std::string> arguments{sizes()};
  const bool computes = !problem.prologue.empty();
  if (computes) {
    const int64_t depth = *problem.k.constant();
    const std::string rows =
        fmt::format("ComputedRows<{}, Config::rows, {}>", body::spelling(problem.a.type), depth);
    entry.line(fmt::format("const auto prologue = [&](const {} &normal) {{", rows));
    emitPrologue(source, entry, region, context, problem, threads, rows, {.held = 128, .ahead = 128});
    entry.line("};");
    arguments.push_back(fmt::format("computed_by<{}>(prologue)", depth));
  } else {
    arguments.push_back(problem.norm ? norm() : scales());
  }
  arguments.push_back(heads ? headEpilogue(sums, *heads, entry) : epilogue(sums));
  if (sums.sends) {
    const Value result = region.outputs[0];
    const int64_t rowBytes = row::sentRowBytes(*context.shape(result).back().constant(), dtype(result));
    source.include("sending_epilogue.cuh");
    arguments.back() = fmt::format("sending_epilogue<{}>({}, {}, {}, {})", context.sendsTo, arguments.back(),
                                   source.exchange(), rowBytes, source.size(problem.m * Dim(rowBytes)));
  }
  if (sums.squares) {
    const Dim perRow = squaresOfRow(problem.n);
    source.include("squares_epilogue.cuh");
    arguments.back() = fmt::format("squares_epilogue<Config>({}, {}, {})", arguments.back(),
                                   source.squares(problem.m * perRow, true), source.size(perRow));
  }
  if (sums.partsOfRow > 0)
    arguments.back() = findingLargest(arguments.back(), sums);
  return finishWithMaps(arguments, threads, clusterBlocks, computes ? nullptr : &mapOfA, mapOf, entry.text());
}

KernelDraft GemmSource::finishSwapCodes(const Sums &sums, uint32_t threads, uint32_t clusterBlocks,
                                        bool isEarly, int64_t entriesAtOnce, const TensorMapArgument &mapOfA,
                                        llvm::function_ref<TensorMapArgument(const Matmul &)> mapOf) {
  source.include(name + ".cuh");
  source.declare(source.config.text());
  SmallVector<std::string> arguments{sizes(), codes(isEarly, entriesAtOnce), epilogue(sums)};
  if (sums.partsOfRow > 0)
    arguments.back() = findingLargest(arguments.back(), sums);
  return finishWithMaps(arguments, threads, clusterBlocks, &mapOfA, mapOf);
}

KernelDraft GemmSource::finish(const Sums &sums, uint32_t threads, uint32_t residentBlocks,
                               bool takesPrologue) {
  source.include(name + ".cuh");
  source.declare(source.config.text());
  body::Code entry;
  SmallVector<std::string> arguments = operands();
  if (takesPrologue)
    arguments.push_back(prologue(entry, threads));
  arguments.push_back(epilogue(sums));
  if (sums.partsOfRow > 0)
    arguments.back() = findingLargest(arguments.back(), sums);
  entry.line(fmt::format("{}<Config>({});", name, llvm::join(arguments, ", ")));
  return source.finish({.schedule = "matmul",
                        .code = entry.text(),
                        .name = kernelName(),
                        .threads = threads,
                        .residentBlocks = residentBlocks});
}

} // namespace fusion::matmul
