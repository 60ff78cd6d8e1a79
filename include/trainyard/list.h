/* What TY_METRICS and TY_RESOURCES need in C++, which has no compound literals: lists that are written in
 * place. The items of each such place are kept until the same thread comes to that place again, so that, as in
 * C, they outlive the statement; they may hold values of variables. */
#ifndef TRAINYARD_LIST_H
#define TRAINYARD_LIST_H

#ifdef __cplusplus
extern "C++" { /* also where a program includes these headers within extern "C" */
#include <initializer_list>
#include <vector>

template <typename List, typename Item, int place>
static inline List ty_list(std::initializer_list<Item> items) {
    static thread_local std::vector<Item> kept;
    kept.assign(items.begin(), items.end());
    List list = List();
    list.items = kept.data();
    list.n = kept.size();
    return list;
}
}

#define TY_LIST(list, item, ...) (ty_list<list, item, __COUNTER__>({__VA_ARGS__}))
#endif

#endif
