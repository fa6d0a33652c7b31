// The dims of a graph's inputs: what exporters call them are hints, not proofs.
#pragma once

#include "ir/base/Dim.h"
#include "ir/base/Result.h"
#include "ir/import/onnx.pb.h"

#include <map>
#include <set>
#include <string>

namespace fusion::onnx {

/// What symbols of dims are equal to.
using DimReplacements = std::map<std::string, Dim, std::less<>>;

struct InputShapes {
  /// Of all inputs but those that are initialisers too. A dim of which inputs do not tell the symbols
  /// (`past_seq_len + seq_len`, and neither anywhere else) becomes a symbol of its own. `given` is put in for
  /// symbols.
  static Result<InputShapes> of(const proto::GraphProto &graph, const DimReplacements &given);

  /// All symbols of the inputs' dims, less those that something was put in for.
  const std::set<std::string, std::less<>> &allSymbols() const { return symbols; }
  /// Whether the symbol stands for such an expression.
  bool isFree(const std::string &symbol) const { return freeSymbols.contains(symbol); }
  /// Dims that the ops say more about than their names do, of all that was learnt: a name that must be a
  /// number, and what a free symbol must be equal to. Both are checked when inputs are bound.
  DimReplacements learnt(const DimReplacements &all) const;

  std::map<std::string, DimShape> shapes; ///< by name
  /// `past + 1`, where another input tells `past`: of as many tokens as the exporter tried, which may be
  /// another number in a run. It is a symbol of its own, too, since the graph most often says what it is;
  /// here is what the file says.
  DimReplacements shiftedDims;

private:
  std::set<std::string, std::less<>> symbols, freeSymbols;
};

} // namespace fusion::onnx
