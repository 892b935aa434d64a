#pragma once

// SharedList: an ordered list of pointers whose copies share what they have in common.
//
// All topics are one immutable image that every shard reads.  A change makes a new image, and with
// two plain vectors each change would copy, and later free, a pointer for every topic there is.
// Here a list is a row of pages that nobody changes: a copy copies the pointers to pages, and a
// change makes one page anew.  So a change among n items costs n / max_page + max_page, and two
// lists that differ by a few items are compared without a look at the pages that both have.
//
// Invariants
//   - Items are in the order of `KeyOf`; equal keys are in no order among each other.
//   - No page is empty, or longer than max_page.
//
// Threads: copies may be used on different threads, as copies of a vector may.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace tarry::storage {

// `Pointer` is cheap to copy; `KeyOf` returns the key of a pointer, which never changes.
template <typename Pointer, typename KeyOf>
class SharedList {
  using Page = std::vector<Pointer>;
  using Pages = std::vector<std::shared_ptr<const Page>>;

 public:
  // About the square root of the largest list that is expected, a hundred thousand.
  static constexpr std::size_t max_page = 256;

  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Pointer;
    using difference_type = std::ptrdiff_t;
    using pointer = const Pointer*;
    using reference = const Pointer&;

    const_iterator() = default;
    reference operator*() const { return (**page_)[at_]; }
    pointer operator->() const { return &**this; }
    const_iterator& operator++() {
      if (++at_ == (*page_)->size()) to_next_page();
      return *this;
    }
    const_iterator operator++(int) {
      const_iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const const_iterator&) const = default;

   private:
    friend SharedList;
    using PageAt = typename Pages::const_iterator;

    const_iterator(PageAt page, std::size_t at) : page_(page), at_(at) {}
    void to_next_page() {
      ++page_;
      at_ = 0;
    }

    PageAt page_;
    std::size_t at_ = 0;
  };

  SharedList() = default;
  explicit SharedList(std::vector<Pointer> items) : size_(items.size()) {
    std::ranges::sort(items, {}, KeyOf());
    for (std::size_t from = 0; from < items.size(); from += half_page) {
      const auto first = items.begin() + static_cast<std::ptrdiff_t>(from);
      const auto count = std::min(half_page, items.size() - from);
      add(pages_.end(), Page(first, first + static_cast<std::ptrdiff_t>(count)));
    }
  }

  const_iterator begin() const { return {pages_.begin(), 0}; }
  const_iterator end() const { return {pages_.end(), 0}; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // The first item whose key is not less.
  template <typename Key>
  const_iterator lower_bound(const Key& key) const {
    const auto page = page_of(key);
    if (page == pages_.end()) return end();
    const auto at = std::ranges::lower_bound(**page, key, {}, KeyOf());
    return {page, static_cast<std::size_t>(at - (*page)->begin())};
  }

  void insert(Pointer item) {
    ++size_;
    auto at = page_of(KeyOf()(item));
    // Behind all others: it joins the last page.
    if (at == pages_.end() && !pages_.empty()) --at;
    if (at == pages_.end()) return add(at, Page{std::move(item)});
    Page page;
    page.reserve((*at)->size() + 1);  // A copy of the right size, and one more.
    page.assign((*at)->begin(), (*at)->end());
    page.insert(std::ranges::lower_bound(page, KeyOf()(item), {}, KeyOf()), std::move(item));
    if (page.size() <= max_page) return replace(at, std::move(page));
    const auto middle = page.begin() + half_page;
    Page rest(middle, page.end());
    page.erase(middle, page.end());
    const auto index = at - pages_.begin();
    replace(at, std::move(page));
    add(pages_.begin() + index + 1, std::move(rest));
  }

  // The item itself, not another of its key; it has to be there.
  void erase(const Pointer& item) {
    auto at = lower_bound(KeyOf()(item));
    while (*at != item) ++at;
    --size_;
    if ((*at.page_)->size() == 1) {
      pages_.erase(at.page_);
      return;
    }
    Page page = **at.page_;
    page.erase(page.begin() + static_cast<std::ptrdiff_t>(at.at_));
    replace(at.page_, std::move(page));
  }

  // Calls take(item, now) with each item of `before` for whose key `after` has another pointer, or
  // none: then `now` is null.  No key may be there twice in one list.
  template <typename Take>
  static void changes_between(const SharedList& before, const SharedList& after, const Take& take) {
    const KeyOf key_of;
    auto was = before.begin(), now = after.begin();
    for (;;) {
      skip_common(was, before.end(), now, after.end());
      if (was == before.end()) return;
      const Pointer& item = *was;
      ++was;
      while (now != after.end() && key_of(*now) < key_of(item)) ++now;
      if (now == after.end() || key_of(item) < key_of(*now)) {
        take(item, Pointer());
        continue;
      }
      if (*now != item) take(item, *now);
      ++now;
    }
  }

 private:
  static constexpr std::size_t half_page = max_page / 2;

  // Leaves both where they differ, or at an end.  Pages that both have are skipped as a whole.
  static void skip_common(const_iterator& a, const const_iterator& end_a, const_iterator& b,
                          const const_iterator& end_b) {
    while (a != end_a && b != end_b) {
      if (a.at_ == 0 && b.at_ == 0 && *a.page_ == *b.page_) {
        a.to_next_page();
        b.to_next_page();
      } else if (*a == *b) {
        ++a;
        ++b;
      } else {
        return;
      }
    }
  }

  // The first page whose last item is not less.
  template <typename Key>
  typename Pages::const_iterator page_of(const Key& key) const {
    return std::ranges::lower_bound(
        pages_, key, {}, [](const auto& page) -> decltype(auto) { return KeyOf()(page->back()); });
  }

  void add(typename Pages::const_iterator at, Page page) {
    pages_.insert(at, std::make_shared<const Page>(std::move(page)));
  }
  void replace(typename Pages::const_iterator at, Page page) {
    pages_[static_cast<std::size_t>(at - pages_.cbegin())] =
        std::make_shared<const Page>(std::move(page));
  }

  Pages pages_;
  std::size_t size_ = 0;
};

}  // namespace tarry::storage
