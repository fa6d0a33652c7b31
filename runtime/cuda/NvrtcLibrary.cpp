#include "runtime/cuda/NvrtcLibrary.h"

namespace fusion {

std::optional<NvrtcLibrary> NvrtcLibrary::of(const Library &library) {
  NvrtcLibrary nvrtc(library);
  const bool complete = library.resolve("nvrtcVersion", nvrtc.getVersion) &&
                        library.resolve("nvrtcGetErrorString", nvrtc.getErrorString) &&
                        library.resolve("nvrtcCreateProgram", nvrtc.createProgram) &&
                        library.resolve("nvrtcDestroyProgram", nvrtc.destroyProgram) &&
                        library.resolve("nvrtcCompileProgram", nvrtc.runCompiler) &&
                        library.resolve("nvrtcGetCUBINSize", nvrtc.getCubinSize) &&
                        library.resolve("nvrtcGetCUBIN", nvrtc.getCubin) &&
                        library.resolve("nvrtcGetProgramLogSize", nvrtc.getLogSize) &&
                        library.resolve("nvrtcGetProgramLog", nvrtc.getLog) &&
                        nvrtc.getVersion(&nvrtc.majorVersion, &nvrtc.minorVersion) == 0;
  return complete ? std::optional(std::move(nvrtc)) : std::nullopt;
}

NvrtcAnswer NvrtcLibrary::compile(const NvrtcRequest &request) const {
  NvrtcAnswer answer;
  Program program = nullptr;
  int code = createProgram(&program, request.source.c_str(), request.file.c_str(), 0, nullptr, nullptr);
  if (code != 0) {
    answer.error = getErrorString(code);
    return answer;
  }
  std::vector<const char *> options;
  for (const std::string &option : request.options)
    options.push_back(option.c_str());
  code = runCompiler(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (getLogSize(program, &size) == 0 && size > 1) {
    answer.log.resize(size);
    if (getLog(program, answer.log.data()) != 0)
      answer.log.clear();
    answer.log.resize(answer.log.find_last_not_of(std::string_view("\n\0", 2)) + 1);
  }
  if (code == 0 && (code = getCubinSize(program, &size)) == 0) {
    answer.cubin.resize(size);
    code = getCubin(program, answer.cubin.data());
  }
  if (code != 0)
    answer.error = getErrorString(code);
  destroyProgram(&program);
  return answer;
}

} // namespace fusion
