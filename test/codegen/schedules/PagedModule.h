// Modules of one attention over pages, for the tests of its kernels.
#pragma once

#include "AttentionCase.h"

namespace fusion::test {

/// Entries "b" have rows of a table of "m" pages each; of a ragged case they are tokens of "s" sequences.
struct Paged {
  std::string type = "bf16";
  int pageSize = 16;
  bool headsFirst = false; ///< pages are [heads, rows, columns], not [rows, heads, columns]
  bool ragged = false, window = false, sink = false;
  std::string codes;        ///< of codes with a scale, "i4": two to a byte; empty: elements
  std::string columns = ""; ///< shape of scales of columns, such as "2x1x64"
  std::string table = "i32";
  int width = 64, heads = 8, kvHeads = 2;
  int latent =
      0; ///< columns of the values, which are the keys' first, in the same pages; 0: they have their own
  std::string attributes = "scale = 0.2 : f32, zero_masked_rows = true";
};

class PagedModule {
public:
  explicit PagedModule(const Paged &c) : c(c) {}

  std::string text() {
    const std::string q = fmt::format("tensor<?x{}x{}x{}x{}>", c.heads, queries(), c.width, c.type);
    const std::string stored = c.codes.empty() ? c.type : isPacked() ? "ui8" : c.codes;
    const std::string page = pageOf(columns());
    add("q", q, fmt::format(R"("b", {}, {}, {})", c.heads, c.ragged ? "1" : "\"q\"", c.width));
    add("k", fmt::format("tensor<?x{}x{}>", page, stored), R"("pages", )" + commas(page));
    std::string views;
    if (c.latent > 0)
      views = valuePages(page, stored);
    else
      add("v", fmt::format("tensor<?x{}x{}>", page, stored), R"("pages", )" + commas(page));
    add("t", fmt::format("tensor<?x?x{}>", c.table), c.ragged ? R"("s", "m")" : R"("b", "m")");
    add("p", fmt::format("tensor<?x1x{}x1xi64>", queries()),
        fmt::format(R"("b", 1, {}, 1)", c.ragged ? "1" : "\"q\""));
    std::string rows = "%t_";
    if (c.ragged) {
      add("r", fmt::format("tensor<?x{}>", c.table), R"("b")");
      body +=
          fmt::format("%rows = nn.gather %t_, %r_ {{axis = 0 : i64}} : (tensor<?x?x{0}>, tensor<?x{0}>) -> "
                      "tensor<?x?x{0}>\n",
                      c.table);
      rows = "%rows";
    }
    const std::string k = keys("k", page, stored, rows, columns()),
                      v = keys("v", c.latent > 0 ? pageOf(c.latent) : page, stored, rows,
                               c.latent > 0 ? c.latent : columns());
    const std::string mask = fmt::format("tensor<?x1x{}x?xi1>", queries());
    const std::string limit = fmt::format("tensor<?x1x{}x1xi64>", queries());
    body += fmt::format(R"(
      %zero = nn.constant {{value = dense<0> : tensor<i64>}} : () -> tensor<i64>
      %one = nn.constant {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>
      %n = nn.iota %zero, %one {{size = ["{0}*m"]}} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
      %above = nn.less_equal %n, %p_ : (tensor<?xi64>, {1}) -> {2}
    )",
                        c.pageSize, limit, mask);
    std::string last = "%above";
    if (c.window) {
      add("l", limit, fmt::format(R"("b", 1, {}, 1)", c.ragged ? "1" : "\"q\""));
      body += fmt::format("%below = nn.greater %n, %l_ : (tensor<?xi64>, {0}) -> {1}\n"
                          "%both = nn.and %above, %below : ({1}, {1}) -> {1}\n",
                          limit, mask);
      last = "%both";
    }
    const std::string scores = c.sink ? fmt::format("tensor<?x{}x{}x?xf32>", c.heads, queries()) : mask;
    const std::string allKeys = c.sink ? front("kp", k, wide(), 2, c.type, "0.0") : k;
    const std::string allValues = c.sink ? front("vp", v, wideValues(), 2, c.type, "0.0") : v;
    if (c.sink)
      last = withSink(front("mp", last, mask, 3, "i1", "true"), mask, scores);
    return fmt::format(R"(
    func.func @main({0}) -> {11} {{
      {12}
      %y = fusion.group "paged_attention" schedule "attention" ({2}) : ({3}) -> {11} {{
        {4}
        %a = nn.attention %q_, {5}, {6}, {7} {{{8}}} : ({1}, {9}, {13}, {10}) -> {11}
        fusion.yield %a : {11}
      }}
      return %y : {11}
    }})",
                       arguments, q, bindings, types, body, allKeys, allValues, last, c.attributes, wide(),
                       scores, fmt::format("tensor<?x{}x{}x{}x{}>", c.heads, queries(), valueWidth(), c.type),
                       views, wideValues());
  }

private:
  bool isPacked() const { return c.codes == "i4"; }
  int columns() const { return isPacked() ? c.width / 2 : c.width; }
  std::string queries() const { return c.ragged ? "1" : "?"; }
  int valueWidth() const { return c.latent > 0 ? c.latent : c.width; }
  std::string wideValues() const {
    return fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, valueWidth(), c.type);
  }
  std::string pageOf(int columns) const {
    return c.pageSize == 1 ? fmt::format("{}x{}", c.kvHeads, columns)
           : c.headsFirst  ? fmt::format("{}x{}x{}", c.kvHeads, c.pageSize, columns)
                           : fmt::format("{}x{}x{}", c.pageSize, c.kvHeads, columns);
  }
  /// The first columns of the keys' pages, bound as those of the values.
  std::string valuePages(const std::string &page, const std::string &stored) {
    const std::string type = fmt::format("tensor<?x{}x{}>", pageOf(c.latent), stored);
    bindings += ", %v_ = %vs";
    types += ", " + type;
    return fmt::format(
        "%vs = nn.slice %k {{starts = [0{}], sizes = [\"pages\", {}], steps = array<i64: 1{}>}} : "
        "(tensor<?x{}x{}>) -> {}",
        c.pageSize == 1 ? ", 0, 0" : ", 0, 0, 0", commas(pageOf(c.latent)),
        c.pageSize == 1 ? ", 1, 1" : ", 1, 1, 1", page, stored, type);
  }
  std::string wide() const { return fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, c.width, c.type); }
  static std::string commas(std::string dims) {
    for (size_t at; (at = dims.find('x')) != std::string::npos;)
      dims.replace(at, 1, ", ");
    return dims;
  }
  void add(const std::string &name, const std::string &type, const std::string &dims) {
    arguments += fmt::format("{}%{}: {}{}", arguments.empty() ? "" : ", ", name, type,
                             dims.empty() ? "" : fmt::format(" {{nn.dims = [{}]}}", dims));
    bindings += fmt::format("{}%{}_ = %{}", bindings.empty() ? "" : ", ", name, name);
    types += (types.empty() ? "" : ", ") + type;
  }
  /// x with one entry of `number` in front along `axis`.
  std::string front(const std::string &result, const std::string &x, const std::string &type, int axis,
                    const std::string &element, const std::string &number) {
    body += fmt::format(
        "%{0}0 = nn.constant {{value = dense<{1}> : tensor<{2}>}} : () -> tensor<{2}>\n"
        "%{0} = nn.pad {3}, %{0}0 {{low = [{4}], high = [0, 0, 0, 0]}} : ({5}, tensor<{2}>) -> {5}\n",
        result, number, element, x, axis == 2 ? "0, 0, 1, 0" : "0, 0, 0, 1", type);
    return "%" + result;
  }
  /// The mask of keys and a sink in front of them.
  std::string withSink(const std::string &kept, const std::string &mask, const std::string &scores) {
    add("s", fmt::format("tensor<1x{}x1x1xf32>", c.heads), fmt::format("1, {}, 1, 1", c.heads));
    body += fmt::format(R"(
      %none = nn.constant {{value = dense<0.0> : tensor<f32>}} : () -> tensor<f32>
      %zeros = nn.expand %none {{shape = [1, {0}, 1, "{1}*m"]}} : (tensor<f32>) -> tensor<1x{0}x1x?xf32>
      %all = nn.concat %s_, %zeros {{axis = 3 : i64}}
        : (tensor<1x{0}x1x1xf32>, tensor<1x{0}x1x?xf32>) -> tensor<1x{0}x1x?xf32>
      %low = nn.constant {{value = dense<0xFF800000> : tensor<f32>}} : () -> tensor<f32>
      %sum = nn.where {2}, %all, %low : ({3}, tensor<1x{0}x1x?xf32>, tensor<f32>) -> {4}
    )",
                        c.heads, c.pageSize, kept, mask, scores);
    return "%sum";
  }
  /// Gathers, transposes and joins the pages; decodes.
  std::string keys(const std::string &x, const std::string &page, const std::string &stored,
                   const std::string &rows, int columns) {
    const std::string result = fmt::format("tensor<?x{}x?x{}x{}>", c.kvHeads, columns, stored);
    const std::string gathered = fmt::format("tensor<?x?x{}x{}>", page, stored);
    body += fmt::format("%{0}g = nn.gather %{0}_, {1} {{axis = 0 : i64}} : (tensor<?x{2}x{3}>, "
                        "tensor<?x?x{4}>) -> {5}\n",
                        x, rows, page, stored, c.table, gathered);
    if (c.headsFirst && c.pageSize > 1) {
      const std::string turned =
          fmt::format("tensor<?x{}x?x{}x{}x{}>", c.kvHeads, c.pageSize, columns, stored);
      body +=
          fmt::format("%{0}t = nn.transpose %{0}g {{perm = array<i64: 0, 2, 1, 3, 4>}} : ({1}) -> {2}\n"
                      "%{0}r = nn.reshape %{0}t {{shape = [\"b\", {3}, \"{4}*m\", {5}]}} : ({2}) -> {6}\n",
                      x, gathered, turned, c.kvHeads, c.pageSize, columns, result);
    } else {
      const std::string joined = fmt::format("tensor<?x?x{}x{}x{}>", c.kvHeads, columns, stored);
      std::string from = x + "g";
      if (c.pageSize > 1) {
        body +=
            fmt::format("%{0}j = nn.reshape %{0}g {{shape = [\"b\", \"{1}*m\", {2}, {3}]}} : ({4}) -> {5}\n",
                        x, c.pageSize, c.kvHeads, columns, gathered, joined);
        from = x + "j";
      }
      body += fmt::format("%{0}r = nn.transpose %{1} {{perm = array<i64: 0, 2, 1, 3>}} : ({2}) -> {3}\n", x,
                          from, joined, result);
    }
    if (c.codes.empty())
      return "%" + x + "r";
    if (!c.columns.empty() || isPacked()) {
      const std::string inF32 = fmt::format("tensor<?x{}x?x{}xf32>", c.kvHeads, c.width),
                        scales = c.columns.empty() ? "tensor<f32>" : fmt::format("tensor<{}xf32>", c.columns);
      add(x + "s", scales, "");
      if (isPacked())
        body += unpacked(x, x + "r", fmt::format("tensor<?x{}x?x", c.kvHeads),
                         fmt::format(R"("b", {}, "{}*m")", c.kvHeads, c.pageSize), c.width);
      else
        body += fmt::format("%{0}c = nn.cast %{0}r : ({1}) -> {2}\n", x, result, inF32);
      body += fmt::format(
          "%{0}m = nn.mul %{0}c, %{0}s_ : ({1}, {2}) -> {1}\n%{0}d = nn.cast %{0}m : ({1}) -> {3}\n", x,
          inF32, scales, wide());
      return "%" + x + "d";
    }
    add(x + "s", "tensor<f32>", "");
    body +=
        fmt::format("%{0}d = nn.dequantize %{0}r, %{0}s_ : ({1}, tensor<f32>) -> {2}\n", x, result, wide());
    return "%" + x + "d";
  }

  const Paged &c;
  std::string arguments, bindings, types, body;
};

} // namespace fusion::test
