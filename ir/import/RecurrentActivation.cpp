#include "ir/import/RecurrentActivation.h"

#include "ir/import/onnx.pb.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace fusion::onnx {

Value Activation::of(NodeImporter &n, Value x) const {
  auto number = [&](double value) { return n.scalar(NodeImporter::typeOf(x), value); };
  auto orElse = [&](Value condition, Value yes, Value no) {
    return n.build<nn::WhereOp>({condition, yes, no});
  };
  if (name == "sigmoid")
    return n.build<nn::SigmoidOp>(x);
  if (name == "tanh")
    return n.build<nn::TanhOp>(x);
  if (name == "relu")
    return n.build<nn::ReluOp>(x);
  if (name == "affine")
    return n.add(n.mul(x, number(alpha)), number(beta));
  if (name == "leakyrelu")
    return orElse(n.build<nn::LessOp>({x, number(0)}), n.mul(x, number(alpha)), x);
  if (name == "thresholdedrelu")
    return orElse(n.build<nn::GreaterOp>({x, number(alpha)}), x, number(0));
  if (name == "scaledtanh")
    return n.mul(n.build<nn::TanhOp>(n.mul(x, number(beta))), number(alpha));
  if (name == "hardsigmoid")
    return n.build<nn::MinOp>(
        {n.build<nn::MaxOp>({n.add(n.mul(x, number(alpha)), number(beta)), number(0)}), number(1)});
  if (name == "elu")
    return orElse(n.build<nn::LessOp>({x, number(0)}),
                  n.mul(n.sub(n.build<nn::ExpOp>(x), number(1)), number(alpha)), x);
  if (name == "softsign")
    return n.div(x, n.add(n.build<nn::AbsOp>(x), number(1)));
  if (name == "softplus")
    return n.build<nn::SoftplusOp>(x);
  n.fail("activation '" + name + "' is not supported");
  return {};
}

std::vector<Activation> recurrentActivations(NodeImporter &n, int64_t directions, ArrayRef<StringRef> usual) {
  std::vector<Activation> all;
  std::vector<std::string> names;
  if (const auto *given = n.attribute("activations"))
    names.assign(given->strings().begin(), given->strings().end());
  else
    for (int64_t i = 0; i < directions; ++i)
      names.insert(names.end(), usual.begin(), usual.end());
  if (names.size() != usual.size() * static_cast<size_t>(directions))
    n.fail(Twine(names.size()) + " activations for " + Twine(directions) + " directions");
  if (n.failed())
    return {};
  // Those without parameters take none of the lists' entries.
  const std::vector<double> alphas = n.floatsAttribute("activation_alpha"),
                            betas = n.floatsAttribute("activation_beta");
  size_t nextAlpha = 0, nextBeta = 0;
  for (const std::string &name : names) {
    Activation activation{llvm::StringRef(name).lower()};
    const llvm::StringRef key = activation.name;
    const auto alpha = llvm::StringSwitch<std::optional<double>>(key)
                           .Case("affine", 1.0)
                           .Case("leakyrelu", 0.01)
                           .Case("thresholdedrelu", 1.0)
                           .Case("scaledtanh", 1.0)
                           .Case("hardsigmoid", 0.2)
                           .Case("elu", 1.0)
                           .Default(std::nullopt);
    const auto beta = llvm::StringSwitch<std::optional<double>>(key)
                          .Case("affine", 0.0)
                          .Case("scaledtanh", 1.0)
                          .Case("hardsigmoid", 0.5)
                          .Default(std::nullopt);
    if (alpha)
      activation.alpha = nextAlpha < alphas.size() ? alphas[nextAlpha++] : *alpha;
    if (beta)
      activation.beta = nextBeta < betas.size() ? betas[nextBeta++] : *beta;
    all.push_back(activation);
  }
  return all;
}

} // namespace fusion::onnx
