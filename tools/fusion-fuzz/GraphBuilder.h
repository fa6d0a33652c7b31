// What the motifs of random graphs are made with.
#pragma once

#include "Random.h"
#include "RandomGraph.h"

namespace fusion::fuzz {

/// A graph in the making. The pool holds values [rows…, width] of the model's element type, from which the
/// next motif may go on; other results are read by nobody and become outputs.
class GraphBuilder {
public:
  explicit GraphBuilder(uint64_t seed);
  /// What nobody reads leaves, and some of what somebody does.
  RandomGraph finish();

  Random random;
  const bool special; ///< the graph is run on special values
  std::string element, width;

  int input(Type type, const std::string &role = "");
  const Type &typeOf(int number) const { return graph.values[static_cast<size_t>(number)]; }
  std::string last(int x) const { return typeOf(x).dims.back(); }
  /// x's type with another element or last dim.
  Type of(int x, const std::string &element) const { return {element, typeOf(x).dims}; }
  Type withLast(int x, const std::string &dim) const;

  int build(const std::string &name, std::vector<int> operands, Type type, std::string attributes = {});
  std::vector<int> buildAll(const std::string &name, std::vector<int> operands, std::vector<Type> types,
                            std::string attributes = {});
  /// A result of the graph, whoever else reads it.
  int returned(int number) {
    leaving.insert(number);
    return number;
  }
  /// Floats of a known width join the pool.
  int keep(int number);
  /// One of the newest of the pool, and one whose last dim is a number.
  int any();
  /// A residual of x's type: something of the pool, or new.
  int residual(int x);
  /// Read by somebody else too, which many fusions mind.
  int maybeShared(int x);
  bool isEmpty() const { return graph.ops.empty(); }

  int vector(int x) { return input({typeOf(x).element, {last(x)}}); }
  int constant(const std::string &element, const std::string &number);
  /// A stored matrix: some fusions want to know that it is one.
  int weight(const std::string &element, std::vector<std::string> dims);
  /// Mostly a constant, which patterns want.
  int number(int x, const std::string &value);
  int unary(const std::string &name, int x, const std::string &attributes = {});
  /// Commuted at times.
  int binary(const std::string &name, int a, int b);
  int activation(int x);
  int cast(int x, const std::string &to);
  int norm(int x);
  int matmul(int x, const std::string &columns, bool stored = false);
  /// Over the last dim, which stays as 1.
  int reduce(const std::string &kind, int x);
  int reshape(int x, std::vector<std::string> dims);
  int transpose(int x, const std::vector<int> &perm);
  /// `size` elements of the last dim from `start` on, `step` apart.
  int slice(int x, const std::string &start, const std::string &size, int step = 1);
  int concat(int a, int b, int axis, const std::string &joined);

private:
  std::set<int> leaving; ///< results, whether anything reads them or not
  RandomGraph graph;
  std::vector<int> pool;
};

} // namespace fusion::fuzz
