// Elementwise ops of two operands, and where.
#include "ir/reference/PointwiseEngine.h"

#include <cmath>
#include <limits>

namespace fusion::reference {
namespace {

// Integers wrap around, and division by zero gives 0.
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    else
      return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return a / b;
    else if (b == T(0))
      return 0;
    else if (std::is_signed_v<T> &&
             b == static_cast<T>(-1)) // the smallest integer has no positive counterpart
      return static_cast<T>(0 - static_cast<uint64_t>(a));
    else
      return a / b;
  }
};
struct Fmod {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return std::fmod(a, b);
    else if (b == T(0) || (std::is_signed_v<T> && b == static_cast<T>(-1)))
      return 0;
    else
      return a % b;
  }
};
struct Mod {
  template <class T>
  T operator()(T a, T b) const {
    T remainder = Fmod()(a, b);
    return remainder != T(0) && (remainder < T(0)) != (b < T(0)) ? static_cast<T>(remainder + b) : remainder;
  }
};
struct Pow {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::pow(a, b);
    } else {
      if (b < T(0)) { // 1 / a^|b|, truncated
        if (a == T(1))
          return 1;
        return a == static_cast<T>(-1) ? (b % 2 == 0 ? T(1) : a) : T(0);
      }
      uint64_t result = 1, base = static_cast<uint64_t>(a);
      for (uint64_t rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1, base *= base)
        if (rest & 1)
          result *= base;
      return static_cast<T>(result);
    }
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(a) || std::isnan(b))
        return std::numeric_limits<T>::quiet_NaN();
    if constexpr (std::is_floating_point_v<T>)
      return largerOf(a, b);
    else
      return a < b ? b : a;
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(a) || std::isnan(b))
        return std::numeric_limits<T>::quiet_NaN();
    if constexpr (std::is_floating_point_v<T>)
      return smallerOf(a, b);
    else
      return b < a ? b : a;
  }
};
struct And {
  uint64_t operator()(uint64_t a, uint64_t b) const { return a & b; }
};
struct Or {
  uint64_t operator()(uint64_t a, uint64_t b) const { return a | b; }
};
struct Xor {
  uint64_t operator()(uint64_t a, uint64_t b) const { return a ^ b; }
};
struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};

template <class T, class Out, class Functor>
Result<Tensors> apply(const Call &call, const Tensor &lhs, const Tensor &rhs, Functor functor) {
  auto shape = broadcastShapes({lhs.shape(), rhs.shape()});
  if (!shape)
    return shape.error();
  return Tensors{mapBinary<T, Out>(lhs, rhs, *shape, call.resultType(),
                                   [&](const T *a, const T *b, Out *y, int64_t count) {
                                     for (int64_t i = 0; i < count; ++i)
                                       y[i] = functor(a[i], b[i]);
                                   })};
}

template <class Functor>
Result<Tensors> arithmetic(const Call &call) {
  return dispatch(arithmeticOf(call.operand(0).type()), [&](auto zero) {
    using T = decltype(zero);
    return apply<T, T>(call, call.operand(0), call.operand(1), Functor());
  });
}

template <class Functor>
Result<Tensors> bitwise(const Call &call) {
  if (isFloat(call.operand(0).type()))
    return problem("takes integers or i1, not {}", name(call.operand(0).type()));
  return apply<uint64_t, uint64_t>(call, call.operand(0), call.operand(1), Functor());
}

template <class Functor, bool Swapped = false>
Result<Tensors> comparison(const Call &call) {
  const Tensor &lhs = call.operand(Swapped ? 1 : 0), &rhs = call.operand(Swapped ? 0 : 1);
  return dispatch(arithmeticOf(lhs.type()),
                  [&](auto zero) { return apply<decltype(zero), bool>(call, lhs, rhs, Functor()); });
}

/// Copies elements, whatever their type.
template <class Element>
void select(const Tensor &condition, const Tensor &x, const Tensor &y, Tensor &result) {
  BroadcastReader<uint64_t> conditions(condition, result.shape());
  StridedView xs(result.shape(), broadcastStrides(x.shape(), result.shape()));
  StridedView ys(result.shape(), broadcastStrides(y.shape(), result.shape()));
  forChunks(result.size(), [&](int64_t begin, int64_t count) {
    alignas(64) uint64_t keep[chunkSize];
    alignas(64) Element left[chunkSize], right[chunkSize];
    const uint64_t *chosen = conditions.read(begin, count, keep);
    xs.copy(x.data(), sizeof(Element), begin, count, left);
    ys.copy(y.data(), sizeof(Element), begin, count, right);
    Element *target = result.as<Element>() + begin;
    for (int64_t i = 0; i < count; ++i)
      target[i] = chosen[i] ? left[i] : right[i];
  });
}

Result<Tensors> where(const Call &call) {
  const Tensor &condition = call.operand(0), &x = call.operand(1), &y = call.operand(2);
  auto shape = broadcastShapes({condition.shape(), x.shape(), y.shape()});
  if (!shape)
    return shape.error();
  Tensor result = Tensor::uninitialized(x.type(), *shape);
  switch (byteSize(x.type())) {
  case 1:
    select<uint8_t>(condition, x, y, result);
    break;
  case 2:
    select<uint16_t>(condition, x, y, result);
    break;
  case 4:
    select<uint32_t>(condition, x, y, result);
    break;
  default:
    select<uint64_t>(condition, x, y, result);
  }
  return Tensors{result.convertedTo(call.resultType())};
}

} // namespace

llvm::ArrayRef<Entry> binaryEntries() {
  static constexpr Entry entries[] = {
      {"nn.add", arithmetic<Add>},
      {"nn.sub", arithmetic<Sub>},
      {"nn.mul", arithmetic<Mul>},
      {"nn.div", arithmetic<Div>},
      {"nn.mod", arithmetic<Mod>},
      {"nn.fmod", arithmetic<Fmod>},
      {"nn.pow", arithmetic<Pow>},
      {"nn.max", arithmetic<Max>},
      {"nn.min", arithmetic<Min>},
      {"nn.and", bitwise<And>},
      {"nn.or", bitwise<Or>},
      {"nn.xor", bitwise<Xor>},
      {"nn.equal", comparison<Equal>},
      {"nn.less", comparison<Less>},
      {"nn.less_equal", comparison<LessEqual>},
      {"nn.greater", comparison<Less, true>},
      {"nn.greater_equal", comparison<LessEqual, true>},
      {"nn.where", where},
  };
  return entries;
}

} // namespace fusion::reference
