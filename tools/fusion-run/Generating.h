// --generate: tokens after prompts.
#pragma once

#include "Options.h"

#include "api/Generate.h"

#include "llvm/Support/CommandLine.h"

#include <string>

namespace fusion {

/// The options of --generate, and what they say.
class GenerateFlags {
public:
  explicit GenerateFlags(llvm::cl::OptionCategory &category);
  /// The first value that makes no sense, as BadInput.
  Status check() const;
  bool isGiven() const { return tokens.getNumOccurrences() > 0; }

  /// Those of --prompt; without it the rows of `input_ids` in `inputs`, where `attention_mask` is not 0.
  Result<std::vector<std::vector<int64_t>>> promptsOf(const NamedTensors &inputs) const;
  GenerateOptions options(const NamedTensors &inputs) const;

private:
  NumberOption<int64_t> tokens, chunk, endToken;
  llvm::cl::list<std::string> prompts;
  NumberOption<uint64_t> seed;
};

/// A line of numbers for each prompt.
std::string tokensText(const Generation &generation);
/// `tokens`, i64 [prompts, tokens]: a row that ended early goes on with its last token.
NamedTensors tokensTensor(const Generation &generation);
/// "tokens 2x8 i64 PASS", or FAIL and where. `pass` is made false then.
std::string compareTokens(const NamedTensors &tokens, const NamedTensors &expected, bool &pass);

} // namespace fusion
