// Codes against the vectors of their definitions.
#include "ir/base/Authentication.h"
#include "ir/base/PrivateFolder.h"

#include <gtest/gtest.h>

using namespace fusion;

TEST(Authentication, Sha256) { // FIPS 180-2, appendix B
  EXPECT_EQ(toHex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(toHex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(toHex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(toHex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Authentication, MessageCode) { // RFC 4231, cases 2 and 6
  EXPECT_EQ(toHex(messageCode("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      toHex(messageCode(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Authentication, FastCode) { // of the authors' reference implementation
  std::string key;
  for (char i = 0; i < 16; ++i)
    key.push_back(i);
  EXPECT_EQ(toHex(fastCode(key, "")), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(toHex(fastCode(key, std::string(1, 0))), "da87c1d86b99af44347659119b22fc45");
  EXPECT_NE(fastCode(key, std::string(8, 0)), fastCode(key, std::string(9, 0)));
}

TEST(Authentication, RandomBytesDiffer) {
  EXPECT_EQ(randomBytes(32).size(), 32u);
  EXPECT_NE(randomBytes(32), randomBytes(32));
}

TEST(Authentication, Sizes) {
  EXPECT_EQ(parseBytes("100"), 100u);
  EXPECT_EQ(parseBytes("3K"), 3072u);
  EXPECT_EQ(parseBytes("8G"), uint64_t{8} << 30);
  EXPECT_EQ(parseBytes("16777215T"), uint64_t{16777215} << 40);
  for (const char *text : {"", "G", "-1", "1 G", "1GB", "16777216T", "99999999999999999999"})
    EXPECT_FALSE(parseBytes(text)) << text;
}
