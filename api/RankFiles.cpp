#include "api/RankFiles.h"

#include "api/Lower.h"
#include "ir/base/BindSymbols.h"
#include "ir/base/MappedFile.h"
#include "ir/dialect/Build.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

using namespace mlir;

namespace fusion {

static constexpr std::string_view placeholder = "{rank}";

bool namesRankFiles(const std::string &path) { return path.find(placeholder) != std::string::npos; }

std::string rankFile(const std::string &path, int rank) {
  std::string file = path;
  for (size_t at; (at = file.find(placeholder)) != std::string::npos;)
    file.replace(at, placeholder.size(), std::to_string(rank));
  return file;
}

namespace {

/// Walks the graphs of all ranks side by side and leaves in rank 0's what each rank has of its own.
class Merger {
public:
  Merger(llvm::MutableArrayRef<func::FuncOp> functions, llvm::ArrayRef<std::string> files)
      : functions(functions), files(files) {}

  Status run() {
    func::FuncOp first = functions.front();
    for (size_t rank = 1; rank < functions.size(); ++rank) {
      func::FuncOp other = functions[rank];
      if (other.getFunctionType() != first.getFunctionType() ||
          other.getAllArgAttrs() != first.getAllArgAttrs() ||
          other.getAllResultAttrs() != first.getAllResultAttrs())
        return badInput(fmt::format("{}: its inputs or outputs are not those of {}", files[rank], files[0]));
    }
    std::vector<Block::iterator> next;
    for (func::FuncOp function : functions)
      next.push_back(function.getBody().front().begin());
    while (next[0] != functions[0].getBody().front().end()) {
      llvm::SmallVector<Operation *> ops;
      for (size_t rank = 0; rank < next.size(); ++rank) {
        if (next[rank] == functions[rank].getBody().front().end())
          return badInput(fmt::format("{}: ends before {} does", files[rank], files[0]));
        ops.push_back(&*next[rank]++);
      }
      if (Status status = merge(ops); !status)
        return status;
    }
    return {};
  }

private:
  Status merge(llvm::ArrayRef<Operation *> ops) {
    Operation *first = ops.front();
    for (size_t rank = 1; rank < ops.size(); ++rank) {
      Operation *other = ops[rank];
      bool same = other->getName() == first->getName() &&
                  other->getResultTypes() == first->getResultTypes() &&
                  other->getNumOperands() == first->getNumOperands();
      for (unsigned i = 0; same && i < first->getNumOperands(); ++i)
        same = isSame(first->getOperand(i), other->getOperand(i));
      if (same && !llvm::isa<nn::WeightOp, nn::ConstantOp>(first))
        same = other->getAttrDictionary() == first->getAttrDictionary();
      if (!same)
        return badInput(
            fmt::format("{}: {} is not what {} has there", files[rank], describe(other), files[0]));
      for (auto [mine, theirs] : llvm::zip(first->getResults(), other->getResults()))
        counterpart[theirs] = mine;
    }
    if (auto weight = llvm::dyn_cast<nn::WeightOp>(first))
      return mergeWeights(weight, ops);
    if (auto constant = llvm::dyn_cast<nn::ConstantOp>(first))
      return mergeConstants(constant, ops);
    return {};
  }

  bool isSame(Value mine, Value theirs) const {
    if (auto argument = llvm::dyn_cast<BlockArgument>(theirs))
      return llvm::isa<BlockArgument>(mine) &&
             llvm::cast<BlockArgument>(mine).getArgNumber() == argument.getArgNumber();
    return counterpart.lookup(theirs) == mine;
  }

  /// Ranks with the same bytes share the first one's: so it can be seen what is the same everywhere.
  Status mergeWeights(nn::WeightOp weight, llvm::ArrayRef<Operation *> ops) {
    Builder builder(weight.getContext());
    llvm::SmallVector<std::string> paths;
    llvm::SmallVector<int64_t> offsets;
    llvm::SmallVector<std::span<const std::byte>> bytes;
    for (auto [rank, op] : llvm::enumerate(ops)) {
      auto own = llvm::cast<nn::WeightOp>(op);
      llvm::SmallString<256> path(own.getPath());
      if (llvm::sys::path::is_relative(path)) {
        path = llvm::sys::path::parent_path(files[rank]);
        llvm::sys::path::append(path, own.getPath());
        llvm::sys::fs::make_absolute(path);
      }
      auto contents = bytesOf(own, path.str().str());
      if (!contents)
        return badInput(
            fmt::format("{}: weight {}: {}", files[rank], own.getName().str(), contents.error().message));
      const size_t same = static_cast<size_t>(
          llvm::find_if(bytes, [&](auto &known) { return std::ranges::equal(known, *contents); }) -
          bytes.begin());
      bytes.push_back(*contents);
      paths.push_back(same < rank ? paths[same] : path.str().str());
      offsets.push_back(same < rank ? offsets[same] : own.getOffset());
    }
    if (llvm::all_equal(paths) && llvm::all_equal(offsets))
      return {};
    llvm::SmallVector<llvm::StringRef> texts(paths.begin(), paths.end());
    weight.setRankPathsAttr(builder.getStrArrayAttr(texts));
    weight.setRankOffsetsAttr(builder.getDenseI64ArrayAttr(offsets));
    return {};
  }

  Result<std::span<const std::byte>> bytesOf(nn::WeightOp weight, const std::string &path) {
    std::shared_ptr<MappedFile> &file = mapped[path];
    if (!file) {
      auto opened = MappedFile::open(path);
      if (!opened)
        return opened.error();
      file = *opened;
    }
    const auto offset = static_cast<uint64_t>(weight.getOffset()),
               length = static_cast<uint64_t>(weight.getLength());
    if (offset > file->bytes().size() || length > file->bytes().size() - offset)
      return badInput(
          fmt::format("{} has {} bytes, needs {} at offset {}", path, file->bytes().size(), length, offset));
    return file->bytes().subspan(offset, length);
  }

  // Pattern: constant a of rank 0, b of rank 1, … -> reshape(slice(constant [a, b, …], tp_rank))
  Status mergeConstants(nn::ConstantOp constant, llvm::ArrayRef<Operation *> ops) {
    auto valueOf = [](Operation *op) { return llvm::cast<nn::ConstantOp>(op).getValue(); };
    if (llvm::all_of(ops, [&](Operation *op) { return valueOf(op) == constant.getValue(); }))
      return {};
    Shape shape = toTensor(constant.getValue()).shape();
    Shape joint = shape;
    joint.insert(joint.begin(), static_cast<int64_t>(ops.size()));
    Tensor all = Tensor::uninitialized(dtype(constant.getY()), joint);
    char *place = all.as<char>();
    for (Operation *op : ops) {
      Tensor own = toTensor(valueOf(op));
      place = std::copy_n(own.as<char>(), own.bytes(), place);
    }
    OpBuilder builder(constant);
    builder.setInsertionPointAfter(constant);
    Location at = constant.getLoc();
    Value stacked = nn::buildConstant(builder, at, toAttribute(constant.getContext(), all));
    DimShape starts(joint.size(), Dim(0)), sizes(joint.begin(), joint.end());
    starts[0] = Dim::symbol(std::string(rankSymbol));
    sizes[0] = 1;
    Value own = nn::build<nn::SliceOp>(
        builder, at, stacked,
        {builder.getNamedAttr("starts", nn::dimsToAttr(builder.getContext(), starts)),
         builder.getNamedAttr("sizes", nn::dimsToAttr(builder.getContext(), sizes)),
         builder.getNamedAttr("steps",
                              builder.getDenseI64ArrayAttr(llvm::SmallVector<int64_t>(sizes.size(), 1)))});
    own = nn::buildReshape(builder, at, own, DimShape(shape.begin(), shape.end()));
    constant.getY().replaceAllUsesWith(own);
    for (Operation *op : ops)
      counterpart[op->getResult(0)] = own;
    return {};
  }

  static std::string describe(Operation *op) {
    std::string where = locationName(op->getLoc());
    return op->getName().getStringRef().str() + (where.empty() ? "" : " at " + where);
  }

  llvm::MutableArrayRef<func::FuncOp> functions;
  llvm::ArrayRef<std::string> files;
  std::map<std::string, std::shared_ptr<MappedFile>> mapped;
  llvm::DenseMap<Value, Value> counterpart; ///< value of another rank's graph -> of rank 0's
};

} // namespace

Result<OwningOpRef<ModuleOp>> importRankFiles(MLIRContext &context, const std::string &path, int ranks,
                                              const ImportOptions &options) {
  std::vector<OwningOpRef<ModuleOp>> modules;
  std::vector<func::FuncOp> functions;
  std::vector<std::string> files;
  for (int rank = 0; rank < ranks; ++rank) {
    files.push_back(rankFile(path, rank));
    auto module = loadModule(context, files.back(), options);
    if (!module)
      return module.error();
    auto entry = entryFunction(module->get());
    if (!entry)
      return badInput(files.back() + ": " + entry.error().message);
    functions.push_back(*entry);
    modules.push_back(std::move(*module));
  }
  if (auto cut = nn::ranksOf(functions.front()); cut && *cut != ranks)
    return badInput(fmt::format("{}: is cut for {} ranks, not {}", files.front(), *cut, ranks));
  if (functions.front().getOps<nn::AllReduceOp>().empty() && ranks > 1)
    return badInput(files.front() + ": holds no AllReduce: it is no rank's part of a graph");
  if (Status status = Merger(functions, files).run(); !status)
    return status.error();
  nn::setMesh(functions.front(), {nn::tensorAxis.str(), ranks});
  return std::move(modules.front());
}

} // namespace fusion
