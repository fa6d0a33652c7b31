// Sequences of different length whose tokens lie one behind the other, and where each begins.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

/// The indices of tokens, made from what each sequence begins at (i64, as all of these).
class RaggedTokens {
public:
  /// `cumulative`, [sequences + 1], has the first token of each sequence and, last, the number of all.
  RaggedTokens(NodeImporter &node, unsigned cumulative, Dim sequences, Dim tokens);

  mlir::Value sequence, place; ///< of each token, [tokens]
  mlir::Value begins, lengths; ///< [sequences]

  /// x, [tokens, …], with as many places for each sequence as there are tokens of all: [sequences, tokens,
  /// …].
  mlir::Value padded(mlir::Value x) const;
  /// The inverse, [tokens, …].
  mlir::Value packed(mlir::Value x) const;
  /// Whether a sequence has that place, [sequences, tokens].
  mlir::Value isToken() const;

private:
  NodeImporter &n;
  Dim sequences, tokens;
};

/// com.microsoft VarlenCausalConvWithState.
void varlenCausalConvolution(NodeImporter &node);

} // namespace fusion::onnx
