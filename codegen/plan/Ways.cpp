// Launches of which a run makes some only, because they do the same in different ways.
#include "codegen/plan/ProgramPlan.h"

#include <algorithm>

namespace fusion {

size_t ProgramPlan::endOfCollective(size_t begin) const {
  size_t end = begin;
  for (; end < launches.size() && launches[end].collective; ++end) {
    const CollectiveForm form = launches[end].collective->form;
    if (end == begin)
      continue;
    const CollectiveForm before = launches[end - 1].collective->form;
    const bool isForLargerSizes = launches[end].when && launches[end].when->least > 1;
    if (form < before || (form == before && form != CollectiveForm::Library && !isForLargerSizes))
      break;
  }
  return end;
}

size_t ProgramPlan::endOfProducts(size_t begin) const {
  size_t end = begin;
  while (end < launches.size() && launches[end].way == ProductWay::Kernel)
    ++end;
  const size_t library = end;
  while (end < launches.size() && launches[end].way == ProductWay::Library)
    ++end;
  return library > begin && end > library ? end : begin;
}

bool ProgramPlan::isOtherWay(size_t launch) const {
  if (launches[launch].way == ProductWay::Library)
    return true;
  for (size_t begin = 0; begin <= launch;) {
    const size_t end = std::max(endOfCollective(begin), begin + 1);
    if (launch < end)
      return launches[begin].collective && launches[launch].collective->form != launches[begin].collective->form;
    begin = end;
  }
  return false;
}

int64_t ProgramPlan::launchesOfRun() const {
  int64_t count = 0;
  for (size_t i = 0; i < launches.size();) {
    const size_t end = std::max(endOfCollective(i), i + 1);
    for (size_t j = i; j < end; ++j) {
      const bool isFirstWay = !launches[j].collective || launches[j].collective->form == launches[i].collective->form;
      count += isFirstWay && launches[j].way != ProductWay::Library && (!launches[j].when || launches[j].when->least == 1);
    }
    i = end;
  }
  return count;
}

} // namespace fusion
