// The weight files of a plan, mapped.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/MappedFile.h"

#include <map>
#include <memory>
#include <string>

namespace fusion {

/// Maps files, each once.
class SpanFiles {
public:
  /// The first byte of `span`, valid as long as this object lives. Errors name the weight and the path: a
  /// file that cannot be opened, or one that ends before the span does.
  Result<const std::byte *> bytesOf(const FileSpan &span, const std::string &weight);
  /// The same where the bytes lie in the memory of that GPU; null where they do not.
  const std::byte *bytesOn(Device device, const FileSpan &span);

private:
  std::map<std::string, std::shared_ptr<MappedFile>> files, onGpu;
};

} // namespace fusion
