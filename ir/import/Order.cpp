// Order of nodes, and what a node says about itself.
#include "ir/import/Graph.h"

#include "llvm/ADT/StringSet.h"

#include <fmt/format.h>
#include <queue>

namespace fusion::onnx {

namespace {

using Nodes = google::protobuf::RepeatedPtrField<proto::NodeProto>;

/// Names that a node reads, with those that its subgraphs read from outside.
void collectReads(const proto::NodeProto &node, std::vector<llvm::StringRef> &reads, int depth = 0) {
  for (const auto &input : node.input())
    if (!input.empty())
      reads.push_back(input);
  if (depth > 16)
    return;
  auto fromGraph = [&](const proto::GraphProto &graph) {
    std::vector<llvm::StringRef> inside;
    llvm::StringSet<> own;
    for (const auto &input : graph.input())
      own.insert(input.name());
    for (const auto &tensor : graph.initializer())
      own.insert(tensor.name());
    for (const auto &inner : graph.node()) {
      collectReads(inner, inside, depth + 1);
      for (const auto &output : inner.output())
        own.insert(output);
    }
    for (const auto &output : graph.output())
      inside.push_back(output.name());
    for (llvm::StringRef name : inside)
      if (!own.contains(name))
        reads.push_back(name);
  };
  for (const auto &attribute : node.attribute()) {
    if (attribute.has_g())
      fromGraph(attribute.g());
    for (const auto &graph : attribute.graphs())
      fromGraph(graph);
  }
}

/// The strings of a Python list literal.
std::vector<std::string> parseStringList(llvm::StringRef text) {
  std::vector<std::string> entries;
  for (size_t i = 0; i < text.size(); ++i) {
    char quote = text[i];
    if (quote != '\'' && quote != '"')
      continue;
    std::string entry;
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size())
        ++i;
      entry.push_back(text[i]);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// The last non-empty name before the node's own.
std::string enclosing(const std::vector<std::string> &scopes) {
  for (size_t i = scopes.empty() ? 0 : scopes.size() - 1; i-- > 0;)
    if (!scopes[i].empty())
      return scopes[i];
  return {};
}

} // namespace

Result<std::vector<int>> topologicalOrder(const Nodes &nodes) {
  llvm::StringMap<int> producers;
  for (int i = 0; i < nodes.size(); ++i)
    for (const auto &output : nodes[i].output())
      if (!output.empty())
        producers.try_emplace(output, i);
  std::vector<std::vector<int>> users(nodes.size());
  std::vector<int> waiting(nodes.size(), 0);
  for (int i = 0; i < nodes.size(); ++i) {
    std::vector<llvm::StringRef> reads;
    collectReads(nodes[i], reads);
    for (llvm::StringRef name : reads) {
      auto producer = producers.find(name);
      if (producer == producers.end())
        continue;
      users[producer->second].push_back(i);
      ++waiting[i];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i)
    if (waiting[i] == 0)
      ready.push(i);
  std::vector<int> order;
  while (!ready.empty()) {
    int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (int user : users[node])
      if (--waiting[user] == 0)
        ready.push(user);
  }
  for (int i = 0; i < nodes.size(); ++i)
    if (waiting[i] > 0)
      return badInput(
          fmt::format("node {}: the graph has a cycle through this node", describeNode(nodes[i])));
  return order;
}

std::string modulePathOf(const proto::NodeProto &node) {
  for (const auto &entry : node.metadata_props())
    if (entry.key() == "pkg.torch.onnx.name_scopes")
      return enclosing(parseStringList(entry.value()));
  for (const auto &entry : node.metadata_props()) {
    if (entry.key() != "namespace")
      continue;
    std::vector<std::string> scopes;
    llvm::SmallVector<llvm::StringRef> parts;
    llvm::StringRef(entry.value()).split(parts, '/');
    for (llvm::StringRef part : parts)
      scopes.push_back(part.split(':').first.trim().str());
    return enclosing(scopes);
  }
  // TorchScript exporters and model builders write `/model/layers.0/input_layernorm/Pow` as the name.
  llvm::StringRef name = node.name();
  if (!name.consume_front("/") || !name.contains('/'))
    return {};
  std::string path = name.rsplit('/').first.str();
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

std::string describeNode(const proto::NodeProto &node) {
  std::string name = node.name();
  if (name.empty() && node.output_size() > 0)
    name = node.output(0);
  std::string domain = node.domain().empty() ? "ai.onnx" : node.domain();
  return fmt::format("'{}' ({}.{})", name, domain, node.op_type());
}

int64_t opsetOf(const OpsetMap *opsets, llvm::StringRef domain) {
  if (domain == "ai.onnx")
    domain = "";
  auto found = opsets ? opsets->find(std::string_view(domain)) : OpsetMap::const_iterator();
  return opsets && found != opsets->end() ? found->second : 1;
}

} // namespace fusion::onnx
