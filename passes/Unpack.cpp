#include "passes/Unpack.h"

#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {

bool isLeaf(Value value) {
  return nn::isStored(value);
}

/// A product and what is done to all its columns before they are taken apart.
struct Packed {
  Operation *product = nullptr; ///< nn.matmul or nn.expert_matmul
  unsigned columnsOfWeight = 0; ///< the weight's axis that counts the product's columns
  nn::AddOp bias;      ///< or null
  nn::ReshapeOp heads; ///< or null
  Value last;          ///< of these: what the slices cut, perhaps after a transpose
  unsigned axis = 0;   ///< of the last value: what the slices cut
  int64_t inner = 1;   ///< columns to one index of that axis
  SmallVector<nn::SliceOp> parts;
};

/// Between the last value and a slice of it: a change of the order of dims, or null.
nn::TransposeOp transposeBefore(nn::SliceOp slice, Value last) {
  return slice.getX() == last ? nn::TransposeOp() : slice.getX().getDefiningOp<nn::TransposeOp>();
}

/// The slice's dims in the order that they have before the transpose, if there is one.
DimShape beforeTranspose(nn::TransposeOp transpose, ArrayAttr dims) {
  DimShape after = nn::dimsFromAttr(dims), before = after;
  if (transpose)
    for (auto [to, from] : llvm::enumerate(transpose.getPerm()))
      before[static_cast<size_t>(from)] = after[to];
  return before;
}

/// `value`'s only reader, if it is an Op.
template <class Op>
Op onlyReader(Value value) {
  return value.hasOneUse() ? llvm::dyn_cast<Op>(*value.user_begin()) : Op();
}

std::optional<Packed> match(Operation *product, ShapeTable &shapes) {
  Packed packed;
  packed.product = product;
  auto experts = llvm::dyn_cast<nn::ExpertMatmulOp>(product);
  const bool transposed =
      experts ? experts.getTransposeW() : llvm::cast<nn::MatmulOp>(product).getTransposeB();
  const unsigned leading = experts ? 1 : 0;
  packed.columnsOfWeight = leading + (transposed ? 0 : 1);
  Value weight = product->getOperand(1);
  if (!isLeaf(weight) || tensorType(weight).getRank() != 2 + leading ||
      tensorType(product->getOperand(0)).getRank() < 2)
    return std::nullopt;
  Value last = product->getResult(0);
  if (auto add = onlyReader<nn::AddOp>(last)) {
    Value other = add.getOperand(0) == last ? add.getOperand(1) : add.getOperand(0);
    if (!isLeaf(other) || tensorType(other).getRank() != 1 || shapes.of(other)[0] != shapes.of(last).back())
      return std::nullopt;
    packed.bias = add;
    last = add->getResult(0);
  }
  DimShape shape = shapes.of(last);
  packed.axis = static_cast<unsigned>(shape.size()) - 1;
  if (auto reshape = onlyReader<nn::ReshapeOp>(last)) {
    DimShape split = shapes.of(reshape.getY());
    if (split.size() != shape.size() + 1 || !std::equal(shape.begin(), shape.end() - 1, split.begin()) ||
        !split.back().isStatic())
      return std::nullopt;
    packed.heads = reshape;
    packed.inner = split.back().value();
    last = reshape.getY();
    shape = split;
  }
  packed.last = last;
  SmallVector<Operation *> users;
  for (Operation *user : last.getUsers())
    if (auto transpose = llvm::dyn_cast<nn::TransposeOp>(user))
      llvm::append_range(users, transpose->getUsers());
    else
      users.push_back(user);
  for (Operation *user : users) {
    auto slice = llvm::dyn_cast<nn::SliceOp>(user);
    if (!slice || llvm::any_of(slice.getSteps(), [](int64_t step) { return step != 1; }))
      return std::nullopt;
    auto transpose = transposeBefore(slice, last);
    DimShape starts = beforeTranspose(transpose, slice.getStarts()),
             sizes = beforeTranspose(transpose, slice.getSizes());
    for (unsigned axis = 0; axis < shape.size(); ++axis) {
      bool all = starts[axis] == Dim(0) && sizes[axis] == shape[axis];
      bool part = axis == packed.axis && starts[axis].isStatic() && sizes[axis].isStatic();
      if (!(all || part))
        return std::nullopt;
    }
    packed.parts.push_back(slice);
  }
  if (packed.parts.size() < 2)
    return std::nullopt;
  return packed;
}

/// Columns [start, start + size) of a leaf.
Value columns(IRRewriter &rewriter, Value leaf, unsigned axis, int64_t start, int64_t size) {
  auto type = tensorType(leaf);
  DimShape starts(static_cast<size_t>(type.getRank()), Dim(0)), sizes;
  for (int64_t dim : type.getShape())
    sizes.push_back(Dim(dim));
  starts[axis] = Dim(start);
  sizes[axis] = Dim(size);
  MLIRContext *context = rewriter.getContext();
  return nn::build<nn::SliceOp>(
      rewriter, leaf.getLoc(), leaf,
      {rewriter.getNamedAttr("starts", nn::dimsToAttr(context, starts)),
       rewriter.getNamedAttr("sizes", nn::dimsToAttr(context, sizes)),
       rewriter.getNamedAttr("steps", rewriter.getDenseI64ArrayAttr(SmallVector<int64_t>(sizes.size(), 1)))});
}

// Pattern: slice(transpose?(reshape?(matmul(x, w) + b?))) -> transpose?(reshape?(matmul(x, slice(w)) +
// slice(b)?))
void unpack(Packed &packed, IRRewriter &rewriter) {
  Operation *product = packed.product;
  for (nn::SliceOp slice : packed.parts) {
    rewriter.setInsertionPoint(slice);
    auto transpose = transposeBefore(slice, packed.last);
    const DimShape shape = beforeTranspose(transpose, slice.getSizes());
    const int64_t start = beforeTranspose(transpose, slice.getStarts())[packed.axis].value() * packed.inner;
    const int64_t size = shape[packed.axis].value() * packed.inner;
    SmallVector<Value> operands(product->getOperands());
    operands[1] = columns(rewriter, operands[1], packed.columnsOfWeight, start, size);
    const Type element = elementType(product->getResult(0));
    Value part = llvm::isa<nn::MatmulOp>(product)
                     ? Value(nn::build<nn::MatmulOp>(rewriter, product->getLoc(), operands,
                                                     product->getAttrs(), element))
                     : Value(nn::build<nn::ExpertMatmulOp>(rewriter, product->getLoc(), operands,
                                                           product->getAttrs(), element));
    if (packed.bias) {
      Value bias = packed.bias.getOperand(packed.bias.getOperand(0) == product->getResult(0) ? 1 : 0);
      part = nn::build<nn::AddOp>(rewriter, packed.bias.getLoc(),
                                  {part, columns(rewriter, bias, 0, start, size)});
    }
    if (packed.heads)
      part = nn::build<nn::ReshapeOp>(
          rewriter, slice.getLoc(), part,
          rewriter.getNamedAttr("shape", nn::dimsToAttr(rewriter.getContext(), shape)));
    if (transpose)
      part = nn::build<nn::TransposeOp>(rewriter, transpose.getLoc(), part, transpose->getAttrs());
    replaceByNew(rewriter, slice, part);
  }
}
} // namespace

void unpackProjections(func::FuncOp function, ShapeTable &shapes,
                       llvm::function_ref<bool(ArrayRef<nn::SliceOp>)> wanted) {
  IRRewriter rewriter(function.getContext(), &shapes);
  SmallVector<Operation *> products;
  for (Operation &op : function.getBody().front())
    if (llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(op))
      products.push_back(&op);
  for (Operation *product : products)
    if (auto packed = match(product, shapes); packed && wanted(packed->parts))
      unpack(*packed, rewriter);
  eraseDeadOps(function);
}

} // namespace fusion
