#pragma once

#include <string_view>

namespace tarry::server {

// Of "localhost", for a hundred years; it protects nothing.
inline constexpr std::string_view key_of_test = R"(-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRjbo7SoDwpLGY+hu
DjOapuGIFcBO0HNMbldUsSW2QiOhRANCAARhLqR5ZH+O9DoNGY6AXRKi7Df2czlD
1w7j+inIggj7IZ6wzLO0v0PjoUaPxdepnwl6YYEBAzvwhecd/IoCLKlO
-----END PRIVATE KEY-----
)";
inline constexpr std::string_view certificate_of_test = R"(-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUWhUcdTnOoh6TsbTt1qKUPBbwSBAwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNjIxMjU1OVoYDzIxMjYxMTAy
MjEyNTU5WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARhLqR5ZH+O9DoNGY6AXRKi7Df2czlD1w7j+inIggj7IZ6wzLO0v0Pj
oUaPxdepnwl6YYEBAzvwhecd/IoCLKlOo1MwUTAdBgNVHQ4EFgQUcMjejunbXxwM
eHo3hWs7xRy6/AEwHwYDVR0jBBgwFoAUcMjejunbXxwMeHo3hWs7xRy6/AEwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBlkrPLuiXQB+Xaug1cHklt
tBcCi4TJc5NXsKfJ6cpjKgIhAKPBNUqrUrM97AZjfEG4bML1/4NQW/HwNa9liyfl
bBz+
-----END CERTIFICATE-----
)";

}  // namespace tarry::server
