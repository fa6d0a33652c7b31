// Elementwise ops of one operand.
#include "ir/reference/PointwiseEngine.h"

#include <cmath>
#include <cstring>

namespace fusion::reference {
namespace {

/// Negation, product and so on that wrap around for integers.
template <class T>
T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<uint64_t>(x));
  else
    return -x;
}
template <class T>
T product(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
  else
    return x * y;
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Each op is a functor. Of numbers:
struct Neg {
  template <class T>
  T operator()(T x) const {
    return negated(x);
  }
};
struct Abs {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return std::fabs(x);
    else if constexpr (std::is_signed_v<T>)
      return x < 0 ? negated(x) : x;
    else
      return x;
  }
};
struct Sign {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(x))
        return x;
    return static_cast<T>((x > T(0)) - (x < T(0)));
  }
};
struct Square {
  template <class T>
  T operator()(T x) const {
    return product(x, x);
  }
};
struct Relu {
  template <class T>
  T operator()(T x) const {
    return x <= T(0) ? T(0) : x;
  } // NaN is not below 0, and -0 becomes 0
};
struct Reciprocal {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return x == T(0) ? T(0) : static_cast<T>(T(1) / x);
    else
      return T(1) / x;
  }
};
struct Floor {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return x;
    else
      return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return x;
    else
      return std::ceil(x);
  }
};
struct Round {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return x;
    else
      return std::nearbyint(x);
  }
};
// Of floats only:
struct Exp {
  template <class T>
  T operator()(T x) const {
    return std::exp(x);
  }
};
struct Log {
  template <class T>
  T operator()(T x) const {
    return std::log(x);
  }
};
struct Sqrt {
  template <class T>
  T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct Rsqrt {
  template <class T>
  T operator()(T x) const {
    return T(1) / std::sqrt(x);
  }
};
struct Sin {
  template <class T>
  T operator()(T x) const {
    return std::sin(x);
  }
};
struct Cos {
  template <class T>
  T operator()(T x) const {
    return std::cos(x);
  }
};
struct Tanh {
  template <class T>
  T operator()(T x) const {
    return std::tanh(x);
  }
};
struct Erf {
  template <class T>
  T operator()(T x) const {
    return std::erf(x);
  }
};
struct Sigmoid {
  template <class T>
  T operator()(T x) const {
    return sigmoid(x);
  }
};
struct Silu {
  template <class T>
  T operator()(T x) const {
    return x / (T(1) + std::exp(-x));
  }
};
struct Softplus {
  template <class T>
  T operator()(T x) const {
    return std::isnan(x) ? x : std::max(x, T(0)) + std::log1p(std::exp(-std::fabs(x)));
  }
};
struct GeluErf {
  // 1 + erf(x / √2) without its cancellation for negative x.
  template <class T>
  T operator()(T x) const {
    return T(0.5) * x * std::erfc(x * T(-0.70710678118654752440));
  }
};
struct GeluTanh {
  template <class T>
  T operator()(T x) const {
    T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + std::tanh(inner));
  }
};
struct GeluQuick {
  template <class T>
  T operator()(T x) const {
    return x / (T(1) + std::exp(T(-1.702) * x));
  }
};

template <class T, class Out, class Functor>
Tensor apply(const Call &call, Functor functor) {
  return mapUnary<T, Out>(call.operand(0), call.resultType(), [&](const T *x, Out *y, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      y[i] = functor(x[i]);
  });
}

template <class Functor>
Result<Tensors> onNumbers(const Call &call) {
  return dispatch(arithmeticOf(call.operand(0).type()), [&](auto zero) -> Tensors {
    return {apply<decltype(zero), decltype(zero)>(call, Functor())};
  });
}

template <class Functor>
Result<Tensors> onFloats(const Call &call) {
  DType type = call.operand(0).type();
  if (!isFloat(type))
    return problem("takes floats, not {}", name(type));
  if (type == DType::F64)
    return Tensors{apply<double, double>(call, Functor())};
  return Tensors{apply<float, float>(call, Functor())};
}

Result<Tensors> gelu(const Call &call) {
  llvm::StringRef form = llvm::cast<nn::GeluOp>(call.op).getApproximate();
  if (form == "tanh")
    return onFloats<GeluTanh>(call);
  return form == "quick" ? onFloats<GeluQuick>(call) : onFloats<GeluErf>(call);
}

/// A condition on floats.
template <class Functor>
Tensors test(const Call &call, Functor functor) {
  if (call.operand(0).type() == DType::F64)
    return {apply<double, bool>(call, functor)};
  return {apply<float, bool>(call, functor)};
}

Result<Tensors> isNan(const Call &call) {
  return test(call, [](auto x) { return std::isnan(x); });
}

Result<Tensors> isInf(const Call &call) {
  auto op = llvm::cast<nn::IsInfOp>(call.op);
  bool negative = op.getNegative(), positive = op.getPositive();
  return test(call, [=](auto x) { return std::isinf(x) && (x < 0 ? negative : positive); });
}

Result<Tensors> complement(const Call &call) {
  DType type = call.operand(0).type();
  if (isFloat(type))
    return problem("takes integers or i1, not {}", name(type));
  bool logical = type == DType::Bool;
  return Tensors{
      apply<uint64_t, uint64_t>(call, [=](uint64_t x) { return logical ? uint64_t(x == 0) : ~x; })};
}

Result<Tensors> cast(const Call &call) {
  const Tensor &x = call.operand(0);
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  forChunks(x.size(), [&](int64_t begin, int64_t count) {
    convert(x.type(), x.as<char>() + static_cast<size_t>(begin) * byteSize(x.type()), result.type(),
            result.as<char>() + static_cast<size_t>(begin) * byteSize(result.type()),
            static_cast<size_t>(count));
  });
  return Tensors{result};
}

Result<Tensors> bitcast(const Call &call) {
  const Tensor &x = call.operand(0);
  if (call.resultType() == DType::Bool)
    return cast(call);
  Tensor result = Tensor::uninitialized(call.resultType(), x.shape());
  if (x.bytes() != 0)
    std::memcpy(result.data(), x.data(), x.bytes());
  return Tensors{result};
}

} // namespace

llvm::ArrayRef<Entry> pointwiseEntries() {
  static constexpr Entry entries[] = {
      {"nn.neg", onNumbers<Neg>},
      {"nn.abs", onNumbers<Abs>},
      {"nn.sign", onNumbers<Sign>},
      {"nn.square", onNumbers<Square>},
      {"nn.relu", onNumbers<Relu>},
      {"nn.reciprocal", onNumbers<Reciprocal>},
      {"nn.floor", onNumbers<Floor>},
      {"nn.ceil", onNumbers<Ceil>},
      {"nn.round", onNumbers<Round>},
      {"nn.exp", onFloats<Exp>},
      {"nn.log", onFloats<Log>},
      {"nn.sqrt", onFloats<Sqrt>},
      {"nn.rsqrt", onFloats<Rsqrt>},
      {"nn.sin", onFloats<Sin>},
      {"nn.cos", onFloats<Cos>},
      {"nn.tanh", onFloats<Tanh>},
      {"nn.erf", onFloats<Erf>},
      {"nn.sigmoid", onFloats<Sigmoid>},
      {"nn.silu", onFloats<Silu>},
      {"nn.softplus", onFloats<Softplus>},
      {"nn.gelu", gelu},
      {"nn.is_nan", isNan},
      {"nn.is_inf", isInf},
      {"nn.not", complement},
      {"nn.cast", cast},
      {"nn.bitcast", bitcast},
  };
  return entries;
}

} // namespace fusion::reference
