/* Links the C library and asks it something that needs no GPU. */
#include <stdio.h>
#include <string.h>
#include <turbogr/c_api.h>

int main(void) {
  tgr_attention attention;
  memset(&attention, 0, sizeof attention);
  const int status = tgr_attention_forward(&attention, NULL, 0, NULL);
  printf("turbogr %s: %s\n", tgr_version(), tgr_last_error());
  return status == 1 && strstr(tgr_last_error(), "struct_size is 0") != NULL ? 0 : 1;
}
