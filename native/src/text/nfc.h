// Unicode normalisation form C.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// Replaces `out` by the NFC of `text`. Bytes that are not UTF-8 stay as they are and join nothing.
void to_nfc(std::string_view text, std::string& out);

}  // namespace deepinfer
