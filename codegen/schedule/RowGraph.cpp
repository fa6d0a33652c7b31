#include "codegen/schedule/RowBuilder.h"

#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace fusion::row {

Node *Builder::load(unsigned input, const View &view, const Space &space, ArrayRef<int64_t> divisors) {
  DimShape target = graph.outerDims[space.outer];
  if (forms[space.form].heads)
    target.push_back(Dim(graph.width.value() / graph.headSize));
  const size_t leading = target.size();
  if (!space.dropped)
    target.push_back(space.width);
  if (space.form != 0) {
    // In the order of the value, so that it broadcasts as in the graph; arrange() puts it into that of the
    // rows.
    DimShape own = target;
    for (auto [place, dim] : llvm::enumerate(forms[space.form].order))
      own[place] = target[dim];
    target = std::move(own);
    if (space.dropped || llvm::any_of(divisors, [](int64_t divisor) { return divisor != 1; }))
      return fail("a scale per block of a value that is split into heads");
  }
  Node node;
  node.kind = Node::Kind::Load;
  node.access.index = input;
  node.access.type = dtype(region.inputs[input]);
  node.access.outer = space.outer;
  node.access.view.offset = view.offset;
  node.access.view.shape = target;
  node.access.view.strides.assign(target.size(), Dim(0));
  node.access.divisors.assign(leading + 1, 1);
  const size_t rank = view.shape.size();
  for (size_t fromEnd = 0; fromEnd < rank; ++fromEnd) {
    const size_t dim = rank - 1 - fromEnd;
    if (view.shape[dim] == Dim(1))
      continue;
    if (fromEnd >= target.size())
      return fail("an operand has more dims than the result it belongs to");
    const size_t place = target.size() - 1 - fromEnd;
    node.access.view.strides[place] = view.strides[dim];
    if (!divisors.empty())
      node.access.divisors[place] = divisors[dim];
  }
  if (space.dropped) {
    node.access.view.shape.push_back(Dim(1));
    node.access.view.strides.push_back(Dim(0));
  }
  arrange(node.access, space.form);
  const bool perRow = llvm::all_of(ArrayRef<Dim>(node.access.view.strides).take_back(node.access.columnDims),
                                   [](const Dim &stride) { return stride == Dim(0); });
  node.level = perRow ? Level::Row : Level::Element;
  const DType element = node.access.type;
  return supplied(std::move(node), element);
}

bool Builder::isDropped(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || llvm::is_contained(region.inputs, value))
    return false;
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return !reduce.getKeepdims();
  if (op->hasTrait<nn::Pointwise>())
    return llvm::any_of(op->getOperands(), [this](Value operand) { return isDropped(operand); });
  if (isa<nn::ReshapeOp>(op) && !viewOf(value)) {
    const DimShape &from = context.shape(op->getOperand(0)), &to = context.shape(value);
    if (isDropped(op->getOperand(0)))
      return to.empty() || to.back() != Dim(1) || (to == from);
    return !from.empty() && from.back() == Dim(1) && graph.width != Dim(1) &&
           (to.empty() || to.back() != Dim(1));
  }
  return false;
}

// Rows of a table, one of which is chosen for each row.
Node *Builder::gathered(nn::GatherOp op, const Space &space) {
  auto table = viewOf(op.getX()), chosen = viewOf(op.getIndices());
  const DimShape &shape = context.shape(op.getY());
  const auto axis = static_cast<int64_t>(op.getAxis());
  if (!table || !chosen || table->second.shape.size() != 2 || (axis != 0 && axis != -2))
    return fail("nn.gather of other than rows of a table");
  if (space.form != 0 || space.dropped || shape.back() != space.width || space.width != graph.width)
    return fail("nn.gather of rows that are not the region's");
  if (context.algorithm)
    return fail("nn.gather beside a sum over ranks");
  View rows = table->second, entry = chosen->second;
  const Dim step = rows.strides[0];
  rows.shape.erase(rows.shape.begin());
  rows.strides.erase(rows.strides.begin());
  entry.shape.push_back(Dim(1));
  entry.strides.push_back(Dim(0));
  Node *index = load(chosen->first, entry, space);
  Node *loaded = index ? load(table->first, rows, space) : nullptr;
  if (!loaded)
    return nullptr;
  loaded->op = op;
  loaded->operands = {index};
  loaded->chosen = index;
  loaded->entries = table->second.shape[0];
  loaded->access.rowStep = step;
  return loaded;
}

// A reshape of a computed value keeps its rows and columns: only the leading dims are split differently.
Node *Builder::reshaped(Operation *op, const Space &space) {
  if (space.form != 0) {
    Form split{true,
               llvm::to_vector(llvm::seq(static_cast<unsigned>(context.shape(op->getResult(0)).size())))};
    if (!(forms[space.form] == split) || !splitsHeads(op))
      return fail("a reshape of a computed value whose dims stand in another order");
    return value(op->getOperand(0),
                 {outer(ArrayRef<Dim>(context.shape(op->getOperand(0))).drop_back()), graph.width, false});
  }
  const DimShape &from = context.shape(op->getOperand(0)), &to = context.shape(op->getResult(0));
  Space source = space;
  source.dropped = isDropped(op->getOperand(0));
  auto leading = [](const DimShape &shape, bool dropped) {
    return ArrayRef<Dim>(shape).take_front(dropped || shape.empty() ? shape.size() : shape.size() - 1);
  };
  ArrayRef<Dim> toLead = leading(to, space.dropped), fromLead = leading(from, source.dropped);
  if (toLead != ArrayRef<Dim>(graph.outerDims[space.outer]))
    return fail("a reshape of a computed value that is broadcast afterwards");
  const bool perRow = space.dropped || to.back() == Dim(1);
  if (product(toLead) != product(fromLead) ||
      (!perRow && (source.dropped || from.empty() || from.back() != to.back())))
    return fail("a reshape that changes the last dim of a computed value");
  source.outer = outer(fromLead);
  return value(op->getOperand(0), source);
}

Node *Builder::value(Value v, Space space) {
  const Key key{v.getAsOpaquePointer(), space.outer, space.dropped, space.width, space.form};
  if (auto found = known.find(key); found != known.end())
    return found->second;
  Node *node = nullptr;
  if (auto view = viewOf(v)) {
    node = load(view->first, view->second, space);
    if (node)
      node->op = v.getDefiningOp();
  } else if (auto addend = addendOf(v)) {
    node = sumOverRanks(v, addend->first, addend->second, space);
    if (node && !node->op)
      node->op = v.getDefiningOp();
  } else if (Operation *op = v.getDefiningOp()) {
    if (!reason.empty())
      return nullptr;
    node = lower(op, cast<OpResult>(v).getResultNumber(), space);
  } else {
    return fail("a block argument that is not an input");
  }
  known[key] = node;
  return node;
}

// The row space belongs to the first op that works along rows, else to the first output.
bool Builder::findRowSpace() {
  Value principal = region.outputs.front();
  for (Operation *op : region.ops)
    if (isa<nn::ReduceOp, nn::SoftmaxOp, nn::RmsNormOp, nn::LayerNormOp, nn::RopeOp, nn::DynamicQuantizeOp>(
            op)) {
      principal = op->getOperand(0);
      break;
    }
  const DimShape &shape = context.shape(principal);
  if (shape.empty()) {
    outer({});
    return true;
  }
  graph.width = shape.back();
  outer(ArrayRef<Dim>(shape).drop_back());
  graph.rows = product(graph.outerDims[0]);
  return true;
}

/// Rows [rows, 1] that belong to the first of `rank` dims.
Node *Builder::scatteredRows(Value rows, size_t rank, const Space &space) {
  auto view = viewOf(rows);
  if (!view)
    return fail("rows of pages that are computed in the group");
  view->second.shape.resize(rank, Dim(1));
  view->second.strides.resize(rank, Dim(0));
  return load(view->first, view->second, space);
}

bool Builder::addOutput(unsigned index) {
  Value output = region.outputs[index];
  const DimShape &shape = context.shape(output);
  const bool dropped = isDropped(output) || shape.empty();
  Space space;
  space.dropped = dropped && !shape.empty();
  space.form = dropped ? 0 : formOf(output);
  space.width = forms[space.form].heads ? Dim(graph.headSize) : graph.width;
  space.outer =
      outer(ArrayRef<Dim>(rowDims(shape, space.form))
                .take_front(shape.empty() ? 0 : shape.size() - (dropped ? 0 : columnDims(space.form))));
  if (product(graph.outerDims[space.outer]) != graph.rows) {
    fail("output " + Twine(index) + " of shape [" + shapeString(shape) + "] has other rows than [" +
         shapeString(graph.outerDims[0]) + "]");
    return false;
  }
  Node *node = value(output, space);
  if (!node)
    return false;
  Store store{node, {}};
  store.access.index = index;
  store.access.type = dtype(output);
  store.access.outer = space.outer;
  store.access.view = context.output(index, output);
  store.access.divisors.assign(graph.outerDims[space.outer].size() + columnDims(space.form), 1);
  if (index < context.placements.size() && context.placements[index]) {
    store.placement = context.placements[index];
    store.row = store.placement->scatters ? scatteredRows(store.placement->rows, shape.size(), space)
                                          : value(store.placement->rows, space);
    if (!store.row)
      return false;
    if (store.row->kind != Node::Kind::Load || store.row->level != Level::Row) {
      fail("rows of a cache that are placed by something else than one integer a row");
      return false;
    }
    std::swap(store.access.rowStep, store.access.view.strides[store.placement->dim]);
  }
  if (space.form != 0) {
    arrange(store.access, space.form);
  } else if (dropped) {
    store.access.view.shape.push_back(Dim(1));
    store.access.view.strides.push_back(Dim(0));
  } else if (node->level == Level::Group && shape.back() != graph.width) {
    store.access.divisors.back() = graph.groupSize;
  } else if (shape.back() != graph.width) {
    if (shape.back() != Dim(1) || node->level != Level::Row) {
      fail("output " + Twine(index) + " of shape [" + shapeString(shape) +
           "] has another last dim than the row");
      return false;
    }
    store.access.view.strides.back() = Dim(0);
  }
  graph.stores.push_back(std::move(store));
  return true;
}

/// Dims that lie one after the other become one, so that a reduction over several is one row.
static void mergeDims(DimShape &shape, DimShape &strides) {
  for (size_t i = shape.size(); i-- > 0;)
    if (shape[i] == Dim(1)) {
      shape.erase(shape.begin() + static_cast<ptrdiff_t>(i));
      strides.erase(strides.begin() + static_cast<ptrdiff_t>(i));
    }
  for (size_t i = shape.size(); i-- > 1;)
    if (strides[i - 1] == strides[i] * shape[i]) {
      shape[i - 1] = shape[i - 1] * shape[i];
      strides[i - 1] = strides[i];
      shape.erase(shape.begin() + static_cast<ptrdiff_t>(i));
      strides.erase(strides.begin() + static_cast<ptrdiff_t>(i));
    }
  if (shape.empty()) {
    shape.push_back(Dim(1));
    strides.push_back(Dim(0));
  }
}

// A single reduction or softmax over other dims than the last: the reduced dims become the row.
std::optional<Graph> Builder::buildPermuted() {
  if (region.ops.size() != 1 || region.inputs.size() != 1)
    return std::nullopt;
  Operation *op = region.ops.front();
  auto reduce = dyn_cast<nn::ReduceOp>(op);
  auto softmax = dyn_cast<nn::SoftmaxOp>(op);
  if (!reduce && !softmax)
    return std::nullopt;
  const DimShape &shape = context.shape(op->getOperand(0));
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<bool> reduced(shape.size(), false);
  const SmallVector<int64_t> axes = reduce ? SmallVector<int64_t>(reduce.getAxes())
                                           : SmallVector<int64_t>{static_cast<int64_t>(softmax.getAxis())};
  for (int64_t axis : axes)
    reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  const bool lastOnly = rank > 0 && reduced.back() && llvm::count(reduced, true) == 1;
  if (lastOnly)
    return std::nullopt;

  auto access = [&](const View &view, unsigned index, DType type) {
    Access result;
    result.index = index;
    result.type = type;
    result.view.offset = view.offset;
    DimShape columns, columnStrides;
    for (size_t i = 0; i < shape.size(); ++i) {
      (reduced[i] ? columns : result.view.shape).push_back(shape[i]);
      (reduced[i] ? columnStrides : result.view.strides).push_back(view.strides[i]);
    }
    mergeDims(columns, columnStrides);
    result.columnDims = static_cast<unsigned>(columns.size());
    result.view.shape.insert(result.view.shape.end(), columns.begin(), columns.end());
    result.view.strides.insert(result.view.strides.end(), columnStrides.begin(), columnStrides.end());
    result.divisors.assign(result.view.shape.size(), 1);
    return result;
  };
  DimShape kept;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!reduced[i])
      kept.push_back(shape[i]);
    else
      graph.width = graph.width * shape[i];
  outer(kept);
  graph.rows = product(kept);
  Node load;
  load.kind = Node::Kind::Load;
  load.level = Level::Element;
  load.access = access(context.inputs[0], 0, dtype(region.inputs[0]));
  Node *x = supplied(std::move(load), dtype(region.inputs[0]));
  Store store;
  if (softmax) {
    store.value = lowerSoftmax(softmax, x);
    store.access = access(View::contiguous(op->getResult(0), shape), 0, dtype(op->getResult(0)));
  } else {
    store.value = lowerReduce(reduce, x);
    store.access.type = dtype(op->getResult(0));
    store.access.view = View::contiguous(op->getResult(0), kept);
    store.access.view.shape.push_back(Dim(1));
    store.access.view.strides.push_back(Dim(0));
    store.access.divisors.assign(kept.size() + 1, 1);
  }
  if (!store.value)
    return Graph();
  graph.stores.push_back(std::move(store));
  return std::move(graph);
}

std::variant<Graph, std::string> Builder::build() {
  if (std::optional<Graph> permuted = buildPermuted()) {
    if (!reason.empty())
      return reason;
    return std::move(*permuted);
  }
  if (region.outputs.empty() || !findRowSpace())
    return std::string("nothing leaves the region");
  for (unsigned i = 0; i < region.outputs.size(); ++i)
    if (!addOutput(i))
      return reason;
  return std::move(graph);
}

std::variant<Graph, std::string> buildGraph(const Region &region, const KernelContext &context) {
  auto built = Builder(region, context).build();
  if (auto *graph = std::get_if<Graph>(&built))
    graph->batchInvariant = context.batchInvariant;
  return built;
}

} // namespace fusion::row
