// A stand-in for libnvrtc.so of version 12.4 that compiles nothing.
extern "C" {
int nvrtcVersion(int *major, int *minor) {
  *major = 12;
  *minor = 4;
  return 0;
}
const char *nvrtcGetErrorString(int) { return "fake"; }
int nvrtcCreateProgram(void **, const char *, const char *, int, const char *const *, const char *const *) {
  return 1;
}
int nvrtcDestroyProgram(void **) { return 0; }
int nvrtcCompileProgram(void *, int, const char *const *) { return 1; }
int nvrtcGetCUBINSize(void *, unsigned long *) { return 1; }
int nvrtcGetCUBIN(void *, char *) { return 1; }
int nvrtcGetProgramLogSize(void *, unsigned long *) { return 1; }
int nvrtcGetProgramLog(void *, char *) { return 1; }
}
