JHý{Á ûÉAò¿øAR“;AgM¹BXv'B0ö±B
n•Á˜`°Á_lÂ®T”Bw%Á—ÀS}ÝÀ¥xÒÀ±:ÂróÂSéƒA@cHBOŠTB\<ÏA0uBg—µÂì³
BÖØÇÁööuÁâÿDÁ–Ç„BávBo¤BOR%ÂtœÀÊ«KÁNY¤ÁuªB%ò¿À