// Caches of GroupQueryAttention that hold a window only (sliding_window_cache): which positions lie in them,
// and what a step leaves. A batch entry of T tokens keeps the last L(T) of them, in order, from row 0 on:
//   L(T) = T where they all fit, else T - G * ceil((T - capacity) / G) with G = capacity - window + 1.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

Value number(NodeImporter &n, const Dim &value) { return n.dimConstant(value, {}, n.i64Type()); }

/// L(tokens).
Value resident(NodeImporter &n, Value tokens, const Dim &capacity, int64_t window) {
  const Dim together = capacity - window + 1;
  const Value beyond = n.build<nn::MaxOp>({n.sub(tokens, number(n, capacity)), number(n, 0)});
  const Value times = n.div(n.add(beyond, number(n, together - 1)), number(n, together));
  return n.sub(tokens, n.mul(times, number(n, together)));
}

} // namespace

WindowedCache::WindowedCache(NodeImporter &n, Value lengths, const Dim &batch, const Dim &queries,
                             const Dim &capacity, int64_t window)
    : n(n), batch(batch), queries(queries), capacity(capacity), window(window) {
  const Value total = n.add(n.reshape(n.cast(lengths, n.i64Type()), {batch, 1}), number(n, 1));
  past = n.build<nn::MaxOp>({n.sub(total, number(n, queries)), number(n, 0)});
  pastRows = resident(n, past, capacity, window);
  rows = resident(n, total, capacity, window);
  first = n.sub(total, rows);
}

Value WindowedCache::positions() { return n.add(past, countFrom(n, 0, queries)); }

Value WindowedCache::withNew(Value cache, Value fresh) { return n.concat({cache, fresh}, 2); }

Value WindowedCache::visible(bool causal) {
  const Value row = countFrom(n, 0, capacity); // row r of the cache holds position past - pastRows + r
  const Value isOld = n.build<nn::LessOp>({row, pastRows});
  const Value old =
      n.build<nn::WhereOp>({isOld, n.add(n.sub(past, pastRows), row), n.scalar(n.i64Type(), -1)});
  const Value keys = n.reshape(n.concat({n.expand(old, {batch, capacity}), positions()}, 1),
                               {batch, 1, 1, capacity + queries});
  const Value asks = n.reshape(positions(), {batch, 1, queries, 1});
  Value kept = n.build<nn::GreaterEqualOp>({keys, number(n, 0)});
  if (causal)
    kept = both(n, kept, n.build<nn::LessEqualOp>({keys, asks}));
  return both(n, kept, n.build<nn::GreaterOp>({keys, n.sub(asks, number(n, window))}));
}

Value WindowedCache::left(Value all) {
  if (n.failed())
    return {};
  const Value row = n.expand(countFrom(n, 0, capacity), {batch, capacity});
  const Value position = n.add(first, row), back = n.sub(position, past);
  const Value isOld = n.build<nn::LessOp>({back, number(n, 0)});
  const Value from = n.build<nn::WhereOp>({isOld, n.add(back, pastRows), n.add(back, number(n, capacity))});
  const Value isUsed = n.build<nn::LessOp>({row, rows});
  const DimShape shape = n.shapeOf(all), result = {batch, shape[1], capacity, shape[3]};
  const Value index = n.reshape(n.build<nn::WhereOp>({isUsed, from, row}), {batch, 1, capacity, 1});
  return n.build<nn::GatherElementsOp>({all, n.expand(index, result)}, n.i64("axis", 2));
}

} // namespace fusion::onnx
