#pragma once

// FreeBy: what a C library made belongs to a unique_ptr, which frees it by the library's function.
//
//   using KeyPtr = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;

namespace tarry {

template <auto free>
struct FreeBy {
  template <typename T>
  void operator()(T* pointer) const {
    free(pointer);
  }
};

}  // namespace tarry
