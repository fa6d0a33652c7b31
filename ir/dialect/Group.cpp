// fusion.group: syntax and verifier.
#include "ir/dialect/Dialect.h"

using namespace mlir;

namespace fusion {

// fusion.group "pattern" schedule "row" (%a = %x, …) attr-dict : (types) -> (types) { body }
ParseResult GroupOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr pattern, schedule;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  FunctionType type;
  if (parser.parseAttribute(pattern, "pattern", result.attributes) || parser.parseKeyword("schedule") ||
      parser.parseAttribute(schedule, "schedule", result.attributes) ||
      parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, [&] {
        return failure(parser.parseArgument(arguments.emplace_back()) || parser.parseEqual() ||
                       parser.parseOperand(operands.emplace_back()));
      }) ||
      parser.parseOptionalAttrDict(result.attributes) || parser.parseColon())
    return failure();
  SMLoc typeLocation = parser.getCurrentLocation();
  if (parser.parseType(type))
    return failure();
  if (type.getNumInputs() != operands.size())
    return parser.emitError(typeLocation, "expected as many operand types as operands");
  for (auto [argument, argumentType] : llvm::zip(arguments, type.getInputs()))
    argument.type = argumentType;
  if (parser.resolveOperands(operands, type.getInputs(), typeLocation, result.operands) ||
      parser.parseRegion(*result.addRegion(), arguments))
    return failure();
  result.addTypes(type.getResults());
  return success();
}

void GroupOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getPatternAttr() << " schedule " << getScheduleAttr() << " (";
  llvm::interleaveComma(llvm::zip(getBody().getArguments(), getInputs()), printer, [&](auto pair) {
    printer.printOperand(std::get<0>(pair));
    printer << " = ";
    printer.printOperand(std::get<1>(pair));
  });
  printer << ")";
  printer.printOptionalAttrDict((*this)->getAttrs(), {"pattern", "schedule"});
  printer << " : ";
  printer.printFunctionalType(getOperation());
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult GroupOp::verify() {
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("body arguments do not have the types of the operands");
  auto yield = llvm::dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || yield.getValues().getTypes() != getResultTypes())
    return emitOpError("fusion.yield does not have the types of the results");
  for (Operation &op : block.without_terminator())
    if (!nn::isGraphOp(&op))
      return emitOpError("holds ") << op.getName() << ", which is not an op of a graph";
  return success();
}

} // namespace fusion
