// What FakeDriver.cpp offers to tests beyond the driver's interface. Found with dlsym.
#pragma once

struct FakeDriverCounters {
  int memory, hostMemory, modules, streams, events, graphs, contexts; ///< alive
  int launches, overlapping;                                          ///< since the start, replayed ones too
  int replays;
  int changes; ///< of nodes in executable graphs
  int fills;
  int waits;         ///< of a stream for an event
  int marks;         ///< events on streams
  void *lastStream;  ///< of the last launch or replay
  void *lastWaited;  ///< the stream that was synchronized last
  int gpus;          ///< set by tests
  int reachable;     ///< likewise: whether GPUs reach each other's memory
  int peerAccesses;  ///< that were enabled
  int opened;        ///< handles of other processes' memory, which are not closed
  int freedTooEarly; ///< allocations, while another process had them open
  int refusing;      ///< set by tests: the GPU that opens none; negative: all do
  int shownGpus;     ///< likewise: GPUs from here on are hidden; negative: none is
  int sameBus;       ///< likewise: whether all GPUs say that they are one
  int failAfter;     ///< memory allocations until one fails; negative: never
  int faultAfter;    ///< kernels until one faults; negative: never
  int loadError;     ///< set by tests: what loading a module returns
  int fault;         ///< from then on what calls return, but for those that give something back; 0: none
};
extern "C" FakeDriverCounters *fakeDriverCounters();
