// Which ops can be imported.
#include "ir/import/NodeImporter.h"
#include "ir/import/OpsFunctions.h"

using namespace mlir;

namespace fusion::onnx {

static std::string key(StringRef domain, StringRef opType) {
  return ((domain == "ai.onnx" ? StringRef() : domain) + ":" + opType).str();
}

void HandlerTable::add(StringRef domain, StringRef opType, unsigned minInputs, unsigned maxInputs,
                       Handler handler) {
  Entry &entry = entries[key(domain, opType)];
  entry.handler = std::move(handler);
  entry.minInputs = minInputs;
  entry.maxInputs = maxInputs;
}

void HandlerTable::preferToFunction(StringRef domain, StringRef opType) {
  entries[key(domain, opType)].overFunction = true;
}

void HandlerTable::addEvaluator(StringRef opType, std::function<bool(NodeImporter &)> evaluate) {
  entries[key("", opType)].evaluate = std::move(evaluate);
}

const HandlerTable::Entry *HandlerTable::find(StringRef domain, StringRef opType) const {
  auto found = entries.find(key(domain, opType));
  return found == entries.end() || !found->second.handler ? nullptr : &found->second;
}

const HandlerTable &HandlerTable::instance() {
  static const HandlerTable table = [] {
    HandlerTable all;
    registerElementwise(all);
    registerShapes(all);
    registerSlices(all);
    registerIndexing(all);
    registerSelections(all);
    registerLosses(all);
    registerTrigonometry(all);
    registerSequences(all);
    registerRegions(all);
    registerMatrices(all);
    registerUnpooling(all);
    registerMoreOfContrib(all);
    registerSparseAttention(all);
    registerHyperConnections(all);
    registerRunningProducts(all);
    registerConstants(all);
    registerControlFlow(all);
    registerLoops(all);
    registerRecurrent(all);
    registerReductions(all);
    registerMatmul(all);
    registerConvolution(all);
    registerNorms(all);
    registerChannelNorms(all);
    registerFourier(all);
    registerPad(all);
    registerResizing(all);
    registerTransposedConvolution(all);
    registerActivations(all);
    registerRotary(all);
    registerAttention(all);
    registerContribAttention(all);
    registerLinearAttention(all);
    registerGatedDeltaNet(all);
    registerContrib(all);
    registerExperts(all);
    registerFloatWeights(all);
    registerScatter(all);
    registerMultiHeadAttention(all);
    registerEmbeddings(all);
    registerQuantisedContrib(all);
    registerEinsum(all);
    registerPooling(all);
    registerQuantisation(all);
    registerKnown(all);
    return all;
  }();
  return table;
}

} // namespace fusion::onnx
