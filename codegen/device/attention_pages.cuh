#pragma once
// Where the rows of keys and values lie: one after the other, or in pages that a block table names. Every
// Config of an attention kernel has
//   page_size    rows of a page; 0: there are none
//   ragged       entries are tokens of one query each; neighbours with one row of the table are a sequence:
//                kernels of many rows take them together, as queries of one entry
// With pages a Config also has
//   Page         the type of the table's elements
// and its Body, to be called after pdl_wait(),
//   const Page *table_row(entry), i64 table_stride()       the numbers of the entry's pages
//   i64 key_pages(), key_page_stride(); the same of value  how many there are, and from one to the next
//   i64 sequence(entry)                                    only of a ragged Config: the row of the table
// where key_rows() and value_rows() give a head's first row of page 0, whatever the entry.

#include "attention.cuh"

template <class Config>
constexpr bool is_paged = Config::page_size > 0;

// Rows of one entry and key/value head.
template <class Config, class T, bool Paged = is_paged<Config>>
struct StoredRows {
  const T *first;
  i64 stride;
  DEVICE const T *row(i64 j) const { return first + j * stride; }
};
template <class Config, class T>
struct StoredRows<Config, T, true> {
  static constexpr int size = Config::page_size;
  using Page = typename Config::Page;
  const T *first;
  i64 stride, page_stride, pages, table_stride;
  const Page *table;
  // The page that holds row j, which must exist, and its first row.
  DEVICE i64 page_number(i64 j) const {
    return gather_index((i64)load(table + (u32)j / (u32)size * table_stride), pages);
  }
  DEVICE const T *page_of(i64 j) const { return first + page_number(j) * page_stride; }
  DEVICE const T *row(i64 j) const { return page_of(j) + (u32)j % (u32)size * stride; }
};
// To be called after pdl_wait() where there are pages.
template <class Config, class Body>
DEVICE auto stored_keys(const Body &body, i64 entry, i64 kv_head) {
  using T = typename Config::Key;
  if constexpr (is_paged<Config>)
    return StoredRows<Config, T>{body.key_rows(entry, kv_head), body.key_stride(),   body.key_page_stride(),
                                 body.key_pages(),              body.table_stride(), body.table_row(entry)};
  else
    return StoredRows<Config, T>{body.key_rows(entry, kv_head), body.key_stride()};
}
template <class Config, class Body>
DEVICE auto stored_values(const Body &body, i64 entry, i64 kv_head) {
  using T = typename Config::Value;
  if constexpr (is_paged<Config>)
    return StoredRows<Config, T>{body.value_rows(entry, kv_head),
                                 body.value_stride(),
                                 body.value_page_stride(),
                                 body.value_pages(),
                                 body.table_stride(),
                                 body.table_row(entry)};
  else
    return StoredRows<Config, T>{body.value_rows(entry, kv_head), body.value_stride()};
}

// The first token behind `token`, up to `end`, that belongs to another sequence. By all lanes of a warp.
template <class Body>
DEVICE int next_sequence(const Body &body, int token, int end) {
  const i64 own = body.sequence(token);
  for (int base = token + 1; base < end; base += 32) {
    const int mine = base + (int)lane_id();
    int next = mine < end && body.sequence(mine) != own ? mine : end;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const int other = shuffle_xor(next, mask);
      next = other < next ? other : next;
    }
    if (next < end)
      return next;
  }
  return end;
}
