#include "Generating.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace cl = llvm::cl;

namespace fusion {

GenerateFlags::GenerateFlags(cl::OptionCategory &category)
    : tokens("generate", "Go on from the prompts with N tokens each; greedy unless --sample says otherwise",
             category, {.unit = "N", .what = "a number of tokens", .least = 1}),
      chunk("chunk", "With --generate: positions of the prompts in one run (default: all)", category,
            {.unit = "N", .what = "a number of positions", .least = 1}),
      endToken("end-token", "With --generate: a prompt whose next token is this one is finished", category,
               {.unit = "ID", .what = "a token id"}),
      prompts("prompt",
              cl::desc("With --generate: token ids of a prompt; repeatable (default: input_ids of --inputs)"),
              cl::value_desc("ID,..."), cl::cat(category)),
      seed("seed", "With --generate: of what --sample draws", category, {.unit = "N", .initial = 0}) {}

static std::optional<std::vector<int64_t>> idsOf(const std::string &text) {
  std::vector<int64_t> ids;
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(text).split(words, ',');
  for (llvm::StringRef word : words)
    if (int64_t id = 0; word.trim().getAsInteger(10, id) || id < 0)
      return std::nullopt;
    else
      ids.push_back(id);
  return ids;
}

Status GenerateFlags::check() const {
  const std::reference_wrapper<const cl::Option> others[] = {chunk, endToken, prompts, seed};
  for (const cl::Option &option : others)
    if (!isGiven() && option.getNumOccurrences())
      return badInput(fmt::format("--{} needs --generate", option.ArgStr.str()));
  for (const std::string &prompt : prompts)
    if (!idsOf(prompt))
      return badInput(fmt::format("--prompt takes token ids such as 1,15,7, not '{}'", prompt));
  return {};
}

Result<std::vector<std::vector<int64_t>>> GenerateFlags::promptsOf(const NamedTensors &inputs) const {
  std::vector<std::vector<int64_t>> rows;
  for (const std::string &prompt : prompts)
    rows.push_back(*idsOf(prompt));
  if (!rows.empty())
    return rows;
  auto ids = inputs.find(std::string(tokenIdsName));
  if (ids == inputs.end() || ids->second.rank() != 2 || !isInteger(ids->second.type()))
    return badInput(
        "--generate needs prompts: give --prompt=ID,… or input_ids [batch, sequence] in --inputs");
  const std::vector<int64_t> values = ids->second.toInts();
  const Shape &shape = ids->second.shape();
  auto mask = inputs.find("attention_mask");
  const bool isMasked = mask != inputs.end() && mask->second.shape() == shape;
  const std::vector<int64_t> visible =
      isMasked ? mask->second.toInts() : std::vector<int64_t>(values.size(), 1);
  rows.resize(static_cast<size_t>(shape[0]));
  for (size_t i = 0; i < values.size(); ++i)
    if (visible[i] != 0)
      rows[i / static_cast<size_t>(shape[1])].push_back(values[i]);
  return rows;
}

GenerateOptions GenerateFlags::options(const NamedTensors &inputs) const {
  GenerateOptions options{.tokens = tokens, .chunk = chunk, .endToken = {}, .seed = seed, .inputs = inputs};
  if (endToken.getNumOccurrences())
    options.endToken = endToken;
  return options;
}

std::string tokensText(const Generation &generation) {
  std::string text;
  for (const std::vector<int64_t> &row : generation.tokens)
    text += fmt::format("tokens: {}\n", fmt::join(row, " "));
  return text;
}

NamedTensors tokensTensor(const Generation &generation) {
  size_t longest = 0;
  for (const std::vector<int64_t> &row : generation.tokens)
    longest = std::max(longest, row.size());
  std::vector<int64_t> all;
  for (std::vector<int64_t> row : generation.tokens) {
    row.resize(longest, row.back());
    all.insert(all.end(), row.begin(), row.end());
  }
  const Shape shape = {static_cast<int64_t>(generation.tokens.size()), static_cast<int64_t>(longest)};
  return {{"tokens", Tensor::of<int64_t>(DType::I64, shape, std::span<const int64_t>(all))}};
}

std::string compareTokens(const NamedTensors &tokens, const NamedTensors &expected, bool &pass) {
  const Tensor &actual = tokens.at("tokens"), &wanted = expected.at("tokens");
  const std::string head = fmt::format("tokens {} i64 ", shapeString(actual.shape()));
  if (actual.shape() != wanted.shape() || !isInteger(wanted.type())) {
    pass = false;
    return fmt::format("{}FAIL {} {} were expected\n", head, shapeString(wanted.shape()),
                       name(wanted.type()));
  }
  const std::vector<int64_t> is = actual.toInts(), was = wanted.toInts();
  for (size_t i = 0; i < is.size(); ++i)
    if (is[i] != was[i]) {
      pass = false;
      const auto length = static_cast<size_t>(actual.shape()[1]);
      return fmt::format("{}FAIL token {} of prompt {} is {}, not {}\n", head, i % length, i / length, is[i],
                         was[i]);
    }
  return head + "PASS\n";
}

} // namespace fusion
