// Matrices: determinants and inverses by elimination with pivots, and grids that a matrix moves.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Larger matrices have too many steps.
constexpr int64_t mostRows = 64;

/// [batch, rows, rows], computed in f32, or f64 for f64.
struct Matrices {
  Value x;
  DimShape outer; ///< the dims before the last two, of which batch is the product
  int64_t rows = 0;
  Dim batch;
  Type type;
};

std::optional<Matrices> squareMatrices(NodeImporter &n) {
  const DimShape shape = n.shape(0);
  Matrices m;
  m.type = n.inputType(0);
  if (n.failed())
    return std::nullopt;
  if (shape.size() < 2 || !shape.back().isStatic() || !(shape.back() == shape[shape.size() - 2]) ||
      shape.back().value() < 1 || shape.back().value() > mostRows || !llvm::isa<FloatType>(m.type)) {
    n.fail("an input of " + shapeString(shape) + " is not square matrices of floats, of 1 to " +
           Twine(mostRows) + " rows");
    return std::nullopt;
  }
  m.rows = shape.back().value();
  m.outer.assign(shape.begin(), shape.end() - 2);
  m.batch = product(m.outer);
  m.type = m.type.isF64() ? m.type : n.f32Type();
  m.x = n.reshape(n.cast(n.operand(0), m.type), {m.batch, m.rows, m.rows});
  return n.failed() ? std::nullopt : std::optional(m);
}

/// Which row has the largest element in column 0, [batch, 1].
Value pivotRow(NodeImporter &n, Value x, const Dim &batch) {
  const Value sizes = n.build<nn::AbsOp>(n.slice(x, 2, 0, 1));
  return n.reshape(n.build<nn::ArgMaxOp>(sizes, {n.i64("axis", 1), n.flag("keepdims", true)}, n.i64Type()),
                   {batch, 1});
}

Value rowsAt(NodeImporter &n, Value x, Value rows) { // rows: [batch, count]
  if (n.failed())
    return {};
  const DimShape shape = n.shapeOf(rows);
  return n.build<nn::GatherNdOp>({x, n.reshape(rows, {shape[0], shape[1], 1})}, n.i64("batch_dims", 1));
}

/// `row`, [batch, 1], and the `count` others in their order.
std::pair<Value, Value> taken(NodeImporter &n, Value x, Value row, int64_t count) {
  const Value others = countFrom(n, 0, count);
  const Value behind = n.cast(n.build<nn::GreaterEqualOp>({others, row}), n.i64Type());
  return {rowsAt(n, x, row), rowsAt(n, x, n.add(others, behind))};
}

/// The pivot's row is taken out step by step, and what is left gets a row and a column less.
void determinant(NodeImporter &n) {
  auto m = squareMatrices(n);
  if (!m)
    return;
  const Value zero = n.scalar(m->type, 0), one = n.scalar(m->type, 1);
  Value x = m->x, result;
  for (int64_t rows = m->rows; rows > 1 && !n.failed(); --rows) {
    const Value row = pivotRow(n, x, m->batch);
    const auto [top, rest] = taken(n, x, row, rows - 1);
    const Value pivot = n.slice(top, 2, 0, 1); // [batch, 1, 1]
    // To the front it moves past as many rows as its number says, each of which turns the sign.
    const Value isOdd =
        n.build<nn::EqualOp>({n.build<nn::ModOp>({row, n.scalar(n.i64Type(), 2)}), n.scalar(n.i64Type(), 1)});
    const Value sign = n.build<nn::WhereOp>({isOdd, n.scalar(m->type, -1), one});
    const Value factor = n.mul(n.reshape(pivot, {m->batch, 1}), sign);
    result = result ? n.mul(result, factor) : factor;
    const Value divisor = n.build<nn::WhereOp>({n.build<nn::EqualOp>({pivot, zero}), one, pivot});
    const Value share = n.div(n.slice(rest, 2, 0, 1), divisor);
    x = n.sub(n.slice(rest, 2, 1, rows - 1), n.mul(share, n.slice(top, 2, 1, rows - 1)));
  }
  const Value last = n.reshape(x, {m->batch, 1});
  result = result ? n.mul(result, last) : last;
  n.result(0, n.cast(n.reshape(result, m->outer), n.inputType(0)));
}

/// Gauss and Jordan's: beside the matrix stands the unit matrix, and each step turns a column into one of the
/// unit matrix and moves it behind the others.
void inverse(NodeImporter &n) {
  auto m = squareMatrices(n);
  if (!m)
    return;
  const int64_t rows = m->rows;
  const Value counted = countFrom(n, 0, rows);
  const Value unit = n.cast(n.build<nn::EqualOp>({n.reshape(counted, {rows, 1}), counted}), m->type);
  Value x = n.concat({m->x, n.expand(unit, {m->batch, rows, rows})}, 2);
  // Rows that were pivots stand behind those that were not; column 0 is the next one.
  for (int64_t step = 0; step < rows && !n.failed(); ++step) {
    const Value open = n.slice(x, 1, 0, rows - step);
    const Value row = pivotRow(n, open, m->batch);
    const auto [top, rest] = taken(n, x, row, rows - 1);
    const Value scaled = n.div(top, n.slice(top, 2, 0, 1));
    const Value share = rows > 1 ? n.sub(rest, n.mul(n.slice(rest, 2, 0, 1), scaled)) : Value();
    x = rows > 1 ? n.concat({share, scaled}, 1) : scaled;
    x = n.slice(x, 2, 1, 2 * rows - step - 1);
  }
  DimShape shape = m->outer;
  shape.insert(shape.end(), {Dim(rows), Dim(rows)});
  n.result(0, n.cast(n.reshape(x, shape), n.inputType(0)));
}

/// Places from -1 to 1 along a dim: the elements' middles, or from the first to the last.
Value placesAlong(NodeImporter &n, const Dim &size, bool corners, Type type) {
  const Value count = n.cast(n.dimConstant({size}, {}, n.i64Type()), type), one = n.scalar(type, 1),
              two = n.scalar(type, 2);
  const Value at = n.cast(countFrom(n, 0, size), type);
  if (!corners) // (2 i + 1) / size - 1
    return n.sub(n.div(n.add(n.mul(at, two), one), count), one);
  if (size == Dim(1))
    return n.mul(at, n.scalar(type, 0));
  return n.sub(n.div(n.mul(at, two), n.sub(count, one)), one);
}

void affineGrid(NodeImporter &n) {
  const DimShape size = n.requireKnown(1, "size"), theta = n.shape(0);
  const bool corners = n.intAttribute("align_corners", 0) != 0;
  const Type given = n.inputType(0);
  if (n.failed())
    return;
  const size_t spatial = size.size() < 2 ? 0 : size.size() - 2;
  const auto count = static_cast<int64_t>(spatial);
  if (spatial < 1 || spatial > 3 || theta.size() != 3 || !(theta[1] == Dim(count)) ||
      !(theta[2] == Dim(count + 1)))
    return n.fail("matrices of " + shapeString(theta) + " do not fit a size of " + shapeString(size));
  for (const Dim &dim : size)
    if (dim.isStatic() && dim.value() < 1)
      return n.fail("the size is " + shapeString(size));
  const Type type = given.isF64() ? given : n.f32Type();
  const DimShape places(size.begin() + 2, size.end());
  // Coordinates with the last dim first, and a 1: [places, dims + 1].
  SmallVector<Value> columns;
  DimShape column = places;
  column.push_back(Dim(1));
  for (size_t i = spatial; i-- > 0;) {
    DimShape shape(spatial + 1, Dim(1));
    shape[i] = places[i];
    columns.push_back(n.expand(n.reshape(placesAlong(n, places[i], corners, type), shape), column));
  }
  columns.push_back(n.expand(n.scalar(type, 1), column));
  const Value grid = n.reshape(n.concat(columns, count), {product(places), Dim(count + 1)});
  const Value moved = n.build<nn::MatmulOp>({grid, n.transpose(n.cast(n.operand(0), type), {0, 2, 1})});
  n.takeAsEqual(theta[0], size[0]);
  DimShape result = {theta[0]};
  result.insert(result.end(), places.begin(), places.end());
  result.push_back(Dim(count));
  n.result(0, n.cast(n.reshape(moved, result), given));
}

} // namespace

void registerMatrices(HandlerTable &table) {
  table.add("", "Det", 1, 1, determinant);
  table.add("com.microsoft", "Inverse", 1, 1, inverse);
  table.add("", "AffineGrid", 2, 2, affineGrid);
}

} // namespace fusion::onnx
