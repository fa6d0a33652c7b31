// Which file it was whose bytes are gone: a mapped file that somebody cuts short ends the program by SIGBUS.
#pragma once

namespace fusion {

/// The path of the MappedFile that holds the address; null if none does. May be called in a signal handler.
const char *mappedFileAt(const void *address);

} // namespace fusion
