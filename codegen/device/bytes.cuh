// Bytes in words, the same on the device and in emulation.

// Turns a square of 4 x 4 bytes: byte i of word j becomes byte j of word i.
DEVICE void turn_bytes(u32 (&words)[4]) {
  const u32 low01 = permute_bytes(words[0], words[1], 0x5140u), low23 = permute_bytes(words[2], words[3], 0x5140u);
  const u32 high01 = permute_bytes(words[0], words[1], 0x7362u), high23 = permute_bytes(words[2], words[3], 0x7362u);
  words[0] = permute_bytes(low01, low23, 0x5410u);
  words[1] = permute_bytes(low01, low23, 0x7632u);
  words[2] = permute_bytes(high01, high23, 0x5410u);
  words[3] = permute_bytes(high01, high23, 0x7632u);
}
