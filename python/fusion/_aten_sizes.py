"""Sizes that follow from those of inputs, as values of a graph."""

from ._errors import Unsupported

_OPS = {
    "Add": "Add",
    "Mul": "Mul",
    "FloorDiv": "Div",
    "CleanDiv": "Div",
    "Max": "Max",
    "Min": "Min",
    "Mod": "Mod",
    "PythonMod": "Mod",
}


class Sizes:
    """`builder` and `op`: of the graph that grows; `inputs`: of the graph, (name, placeholder) in order."""

    def __init__(self, builder, op, inputs):
        self.b, self.op, self.inputs = builder, op, inputs
        self.lengths = {}  # input that is made for a number -> (factor, sum)
        self._symbols = {}  # symbol -> (input's name, dim, factor, sum): the size is factor * symbol + sum
        self._linear = {}  # the same of symbols that are no dim by themselves
        self._numbers = {}  # symbol -> (placeholder of a number that is factor * symbol + sum, factor, sum)
        self._others = {}  # expression of several symbols -> (input's name, dim) that it is

    def learn_dim(self, expr, name, axis):
        """What a dim of an input says about symbols: itself, or one in 2*s + 3."""
        if expr.is_symbol:
            self._symbols.setdefault(str(expr), (name, axis, 1, 0))
        elif found := _linear(expr):
            symbol, factor, rest = found
            if factor > 0:
                self._linear.setdefault(symbol, (name, axis, factor, rest))
        else:
            self._others.setdefault(expr, (name, axis))

    def learn_number(self, expr, node):
        """What a placeholder of a number says about one."""
        if found := _linear(expr):
            symbol, factor, rest = found
            self._numbers.setdefault(symbol, (node, factor, rest))

    def value(self, e, bounds):
        """An expression as an int64 vector of one element. `bounds`: the ShapeEnv that knows those of symbols."""
        if e.is_Integer:
            return self.b.ints([int(e)])
        if e in self._others and not all(self._is_known(str(symbol)) for symbol in e.free_symbols):
            return self._dim(*self._others[e])
        if e.is_Symbol:
            return self._symbol(str(e))
        kind, args = type(e).__name__, e.args
        if kind == "Pow" and e.args[1].is_Integer and e.args[1] > 0:
            kind, args = "Mul", [e.args[0]] * int(e.args[1])
        if kind not in _OPS:
            raise Unsupported(f"a size that is {e}")
        result = self.value(args[0], bounds)
        for arg in args[1:]:
            other = self.value(arg, bounds)
            if kind == "FloorDiv" and not bounds.bound_sympy(args[0]).lower >= 0:
                # ONNX's Div rounds towards zero; its Mod has the divisor's sign, as Python's.
                result = self.op("Sub", [result, self.op("Mod", [result, other])])
            result = self.op(_OPS[kind], [result, other])
        return result

    def _dim(self, name, axis):
        return self.op("Shape", [name], start=axis, end=axis + 1)

    def _symbol(self, symbol):
        if symbol not in self._symbols and symbol in self._linear:
            self._symbols[symbol] = self._linear[symbol]
        if symbol not in self._symbols and symbol in self._numbers:
            self._add_input(symbol, *self._numbers[symbol])
        if symbol not in self._symbols:
            raise Unsupported(
                f"the size {symbol} is no dim of an input: it depends on the contents of a tensor"
            )
        name, axis, factor, rest = self._symbols[symbol]
        size = self._dim(name, axis)
        size = self.op("Sub", [size, self.b.ints([rest])]) if rest else size
        return self.op("Div", [size, self.b.ints([factor])]) if factor != 1 else size

    def _is_known(self, symbol):
        return symbol in self._symbols or symbol in self._linear or symbol in self._numbers

    def _add_input(self, symbol, node, factor, rest):
        """A number that no tensor's dim is, where `node` is factor * number + rest: an input whose length it
        is."""
        name = self.b.fresh("size")
        self.b.input(name, "bool", [symbol])
        self.inputs.append((name, node))
        self.lengths[name] = (factor, rest)
        self._symbols[symbol] = (name, 0, 1, 0)


def _linear(expr):
    """(symbol's name, factor, sum) of factor * symbol + sum; None of other expressions."""
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    factor = expr.coeff(symbol)
    rest = expr - factor * symbol
    known = factor.is_Integer and factor != 0 and rest.is_Integer
    return (str(symbol), int(factor), int(rest)) if known else None
