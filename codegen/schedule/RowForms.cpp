// Values whose rows are split into heads, or whose leading dims stand in another order, as between the norm
// of all queries and their rotations.
#include "codegen/schedule/RowBuilder.h"

#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace fusion::row {

unsigned Builder::form(Form form) {
  bool asTheyAre = !form.heads;
  for (auto [place, dim] : llvm::enumerate(form.order))
    asTheyAre &= place == dim;
  if (asTheyAre)
    return 0;
  auto known = llvm::find(forms, form);
  if (known == forms.end())
    known = forms.insert(known, std::move(form));
  return static_cast<unsigned>(known - forms.begin());
}

bool Builder::splitsHeads(Operation *reshape) {
  const DimShape &from = context.shape(reshape->getOperand(0)), &to = context.shape(reshape->getResult(0));
  return !from.empty() && from.back() == graph.width && graph.width.isStatic() && to.size() > 1 &&
         to.back().isStatic() && to.end()[-2].isStatic() && to.end()[-2] * to.back() == from.back() &&
         product(ArrayRef<Dim>(from).drop_back()) == product(ArrayRef<Dim>(to).drop_back(2)) &&
         (graph.headSize == 0 || to.back() == Dim(graph.headSize));
}

unsigned Builder::formOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || viewOf(value))
    return 0;
  const unsigned rank = static_cast<unsigned>(context.shape(value).size());
  if (isa<nn::ReshapeOp>(op)) {
    if (isDropped(op->getOperand(0)) || viewOf(op->getOperand(0)) ||
        context.shape(value).back() == graph.width || !splitsHeads(op) || formOf(op->getOperand(0)) != 0)
      return 0;
    graph.headSize = context.shape(value).back().value();
    return form({true, llvm::to_vector(llvm::seq(rank))});
  }
  if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
    Form from = forms[formOf(op->getOperand(0))], to{from.heads, {}};
    for (int64_t dim : transpose.getPerm())
      to.order.push_back(from.order.empty() ? static_cast<unsigned>(dim)
                                            : from.order[static_cast<size_t>(dim)]);
    return form(std::move(to));
  }
  for (Value operand : op->getOperands())
    if (context.shape(operand) == context.shape(value))
      if (unsigned found = formOf(operand))
        return found;
  return 0;
}

DimShape Builder::rowDims(ArrayRef<Dim> shape, unsigned number) const {
  DimShape dims(shape.begin(), shape.end());
  for (auto [place, dim] : llvm::enumerate(forms[number].order))
    if (place < shape.size() && dim < dims.size())
      dims[dim] = shape[place];
  return dims;
}

Node *Builder::transposed(nn::TransposeOp op, const Space &space) {
  ArrayRef<int64_t> perm = op.getPerm();
  if (space.dropped || perm.empty() || perm.back() + 1 != static_cast<int64_t>(perm.size()))
    return fail("nn.transpose of the last dim of a computed value");
  const Form &to = forms[space.form];
  Form from{to.heads, SmallVector<unsigned>(perm.size())};
  for (auto [place, dim] : llvm::enumerate(perm))
    from.order[static_cast<size_t>(dim)] = to.order.empty() ? static_cast<unsigned>(place) : to.order[place];
  Space source = space;
  source.form = form(std::move(from));
  return value(op.getX(), source);
}

void Builder::arrange(Access &access, unsigned number) const {
  const Form &form = forms[number];
  View given = access.view;
  const SmallVector<int64_t> divisors = access.divisors;
  for (auto [place, dim] : llvm::enumerate(form.order)) {
    access.view.shape[dim] = given.shape[place];
    access.view.strides[dim] = given.strides[place];
    access.divisors[dim] = divisors[place];
  }
  if (!form.heads)
    return;
  const Dim size = graph.headSize;
  access.columnDims = 2;
  access.view.shape.back() = size; // a table has fewer entries, at the same places
  if (access.view.strides.end()[-2] == access.view.strides.back() * size) {
    access.columnDims = 1;
    access.view.shape.end()[-2] = graph.width;
    access.view.strides.end()[-2] = access.view.strides.back();
    access.view.shape.pop_back();
    access.view.strides.pop_back();
    access.divisors.pop_back();
  }
}

} // namespace fusion::row
